"""Instructions one by one, as a builder writes them."""

from __future__ import annotations

from ..diagnostics import Source
from ..errors import PtxError
from ..syntax import ast
from ..targets import Target
from ..types import SCALAR_TYPES
from .instructions import Instructions
from .operands import CARRY_FLAG
from .scope import Scope
from .state import Body, ModuleState
from .typed import LabelRef, Register, Symbol

__all__ = ["InstructionChecker"]


class InstructionChecker:
    """Checks instructions one by one, as a builder writes them into one function.

    Names are declared first; :meth:`check` raises :class:`ptxsim.PtxError` for what the assembler
    would refuse.
    """

    def __init__(self, version: tuple[int, int], target: Target, address_size: int) -> None:
        state = ModuleState(Source("<build>", ""))
        state.version, state.target = version, target
        state.address_size = address_size
        self._log = state.log
        self._instructions = Instructions(state)
        self._scope = Scope(state.top)
        self._body = Body(entry="<build>")
        flag = Register(CARRY_FLAG, 0, SCALAR_TYPES["pred"])
        self._body.registers.append(flag)
        self._scope.names[CARRY_FLAG] = flag

    def register(self, name: str, type_: str) -> None:
        """Declare a register."""
        register = Register(name, len(self._body.registers), SCALAR_TYPES[type_])
        self._body.registers.append(register)
        self._scope.names[name] = register

    def variable(self, name: str, space: str, type_: str, count: int, align: int) -> None:
        """Declare a variable or parameter; ``count`` 0 is an array of unknown extent."""
        scalar = SCALAR_TYPES[type_]
        role = "input" if space == "param" else ""
        self._scope.names[name] = Symbol(name, space, scalar, scalar.size * count, align, role=role)

    def label(self, name: str) -> None:
        """Declare a label."""
        self._scope.names[name] = LabelRef(name, -1)

    def check(self, node: ast.Instruction, text: str) -> None:
        """Refuse an instruction that is not legal here; ``text`` is quoted in the messages."""
        self._instructions.add(node, self._scope, self._body)
        found, self._log.items = self._log.items, []
        if found:
            raise PtxError(found, Source("<build>", text))
