"""Kernels for launches on a GPU, real or not."""

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

#: y[i] = x[i] + n for i below the number of threads, with one thread an element
ADD = (
    HEAD
    + """\
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .b32 %t, %b, %s, %v;
    .reg .b64 %x, %y, %o;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.u32 %v, [n];
    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    mov.u32 %s, %ntid.x;
    mad.lo.u32 %t, %b, %s, %t;
    mul.wide.u32 %o, %t, 4;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    ld.global.u32 %b, [%x];
    add.u32 %v, %v, %b;
    st.global.u32 [%y], %v;
    ret;
}
"""
)

#: stores 7 as a byte at p + d
POKE = (
    HEAD
    + """\
.visible .entry poke(.param .u64 p, .param .u64 d)
{
    .reg .b32 %v;
    .reg .b64 %p, %d;
    ld.param.u64 %p, [p];
    ld.param.u64 %d, [d];
    add.u64 %p, %p, %d;
    mov.u32 %v, 7;
    st.global.u8 [%p], %v;
    ret;
}
"""
)

TRAP = HEAD + ".visible .entry k()\n{\n    trap;\n    ret;\n}\n"
EMPTY = HEAD + ".visible .entry k()\n{\n    ret;\n}\n"
