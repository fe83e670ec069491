"""Every mnemonic of the PTX ISA, so that a known one without a record is *unsupported*.

A mnemonic is the longest listed prefix of the dotted opcode: ``cp.async.bulk`` is not
``cp.async``.  From the instruction list of PTX ISA 9.1 and the forms that ptxas takes.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["MNEMONICS", "canonical", "mnemonic"]

MNEMONICS: frozenset[str] = frozenset(
    """
    abs activemask add addc alloca and applypriority atom bar bar.warp.sync barrier
    barrier.cluster.arrive barrier.cluster.wait bfe bfi bfind bmsk bra brev brkpt brx.idx call
    clusterlaunchcontrol.try_cancel clusterlaunchcontrol.query_cancel clz cnot copysign cos
    cp.async cp.async.bulk cp.async.bulk.tensor cp.async.bulk.prefetch
    cp.async.bulk.prefetch.tensor cp.async.bulk.commit_group cp.async.bulk.wait_group
    cp.async.commit_group cp.async.mbarrier.arrive cp.async.wait_all cp.async.wait_group
    cp.reduce.async.bulk cp.reduce.async.bulk.tensor createpolicy createpolicy.cvt
    createpolicy.fractional createpolicy.range cvt cvt.pack cvta discard div dp2a dp4a elect.sync
    ex2 exit fabric fence fence.proxy fma fns getctarank griddepcontrol isspacep istypep ld
    ldmatrix ldu lg2 lop3 mad mad24 madc mapa match.any.sync match.all.sync max mbarrier.init
    mbarrier.inval mbarrier.arrive mbarrier.arrive_drop mbarrier.complete_tx mbarrier.expect_tx
    mbarrier.pending_count mbarrier.test_wait mbarrier.try_wait membar min mma mma.sp
    mma.sp::ordered_metadata mov movmatrix
    mul mul24 multimem.ld_reduce multimem.red multimem.st multimem.cp.async.bulk
    multimem.cp.reduce.async.bulk nanosleep neg not or pmevent popc
    prefetch prefetchu prmt rcp red red.async redux.sync rem ret rsqrt sad selp set setmaxnreg
    setp shf shfl shfl.sync shl shr sin slct sqrt st st.async st.bulk stackrestore stacksave
    stmatrix sub subc suld sured sust suq szext tanh
    tcgen05.alloc tcgen05.commit tcgen05.cp tcgen05.dealloc tcgen05.fence tcgen05.ld tcgen05.mma
    tcgen05.relinquish_alloc_permit tcgen05.shift tcgen05.st tcgen05.wait
    tensormap.cp_fenceproxy tensormap.query tensormap.replace testp tex tld4 trap txq vabsdiff
    vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote
    vote.sync vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma.commit_group wgmma.fence
    wgmma.mma_async wgmma.wait_group wmma.load wmma.mma wmma.store xor
    """.split()
)


#: Mnemonics that end in ``sync``, which may stand behind other modifiers (measured).
_LATE_SYNC = frozenset({"elect", "match", "redux", "shfl", "vote"})


def canonical(opcode: tuple[str, ...]) -> tuple[str, ...]:
    """The opcode with the parts of its mnemonic in front; sync may stand twice.

    >>> canonical(("match", "b32", "sync", "any"))
    ('match', 'any', 'sync', 'b32')
    """
    if opcode[0] not in _LATE_SYNC or "sync" not in opcode[1:]:
        return opcode
    head = [w for w in opcode if w in ("any", "all")][:1] if opcode[0] == "match" else []
    rest = [w for w in opcode[1:] if w != "sync" and w not in head]
    return (opcode[0], *head, "sync", *rest)


@lru_cache(maxsize=4096)
def mnemonic(opcode: tuple[str, ...]) -> str | None:
    """The mnemonic that a dotted opcode begins with, or None if the ISA has none.

    A part may carry a qualifier (``tcgen05.wait::st``); the part before ``::`` counts.

    >>> mnemonic(("cp", "async", "bulk", "shared::cluster"))
    'cp.async.bulk'
    """
    for length in range(min(len(opcode), 5), 0, -1):
        name = ".".join(opcode[:length])
        if name in MNEMONICS:
            return name
        stem = name.split("::")[0]
        if stem in MNEMONICS and length == stem.count(".") + 1:
            return stem
    if opcode[0] in ("tcgen05", "wgmma", "clusterlaunchcontrol"):
        return opcode[0]
    return None
