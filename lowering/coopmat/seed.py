"""Where the functions of the seed, Sarek's ``Sarek_ir_ptx_coopmat``, are here."""

from __future__ import annotations

__all__ = ["SEED_NAMES"]

#: Name in the seed, and the name here.
SEED_NAMES: dict[str, str] = {
    "min_sm": "lowering.coopmat.forms.min_sm",
    "min_sm_int8": "lowering.coopmat.forms.min_sm_int8",
    "shape_16": "lowering.coopmat.forms.shape_16",
    "refuse": "lowering.coopmat.refusals.refuse",
    "check_fragment": "lowering.coopmat.forms.check_fragment",
    "is_8bit": "lowering.coopmat.forms.is_8bit",
    "is_int32": "lowering.coopmat.forms.is_int32",
    "check_config": "lowering.coopmat.forms.check_config",
    "operand_layouts": "lowering.coopmat.check.operand_layouts",
    "accessed_buffers": "lowering.coopmat.check.accessed_buffers",
    "sm_number": "lowering.coopmat.check.sm_number",
    "check_kernel": "lowering.coopmat.check.check_kernel",
    # a brace group is a tuple of registers among the operands
    "regs_text": "ptxsim.build.Kernel.emit",
    "layout_suffix": "lowering.coopmat.forms.layout_suffix",
    "elt_of": "lowering.coopmat.forms.elt_of",
    "elt_name": "lowering.coopmat.forms.elt_name",
    "ptx_type": "lowering.coopmat.forms.ptx_type",
    "frag_reg_count": "lowering.coopmat.wmma.frag_reg_count",
    "operand_layout": "lowering.coopmat.emit._Writer.operand_layout",
    "emit_decl": "lowering.coopmat.emit._Writer.emit_decl",
    "emit_access": "lowering.coopmat.emit._Writer.emit_access",
    "emit_load": "lowering.coopmat.emit._Writer.emit_load",
    "emit_store": "lowering.coopmat.emit._Writer.emit_store",
    "emit_muladd": "lowering.coopmat.emit._Writer.emit_muladd",
    "emit_op": "lowering.coopmat.emit._Writer.emit_op",
}
