"""Random statements of kernels: scalars of int32 and bool in all control flow, and random tiles."""

from __future__ import annotations

import random

__all__ = ["COMPARISONS", "RandomKernel", "RandomTiles"]

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class RandomKernel:
    """A random kernel of int32 variables, all of them mutable, with every kind of statement."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = ["n", "i"]
        self.mutable: list[str] = []
        self.made = 0

    def number(self, depth: int = 0) -> str:
        """An expression of int32."""
        pick = self.rng.randrange(9 if depth < 3 else 3)
        if pick == 0:
            return str(
                self.rng.choice([0, 1, 2, 3, 7, 31, 255, 2**31 - 1, self.rng.randrange(2**31)])
            )
        if pick < 3:
            return self.rng.choice(self.names)
        if pick == 3:
            return f"x[({self.number(depth + 1)}) & 63]"
        if pick == 4:
            return self.rng.choice("-~") + f"({self.number(depth + 1)})"
        if pick == 5:
            op = self.rng.choice("/%")
            return f"({self.number(depth + 1)}) {op} (({self.number(depth + 1)}) | 1)"
        if pick == 6:
            return f"int32({self.truth(depth + 1)})"
        if pick == 7:
            kind = self.rng.choice(["int64", "float64"])
            return f"int32({kind}({self.number(depth + 1)}))"
        op = self.rng.choice(["+", "-", "*", "&", "|", "^", "<<", ">>"])
        return f"({self.number(depth + 1)}) {op} ({self.number(depth + 1)})"

    def truth(self, depth: int = 0) -> str:
        """An expression of bool."""
        if depth > 2 or self.rng.random() < 0.6:
            op = self.rng.choice(COMPARISONS)
            return f"({self.number(depth + 1)}) {op} ({self.number(depth + 1)})"
        if self.rng.random() < 0.3:
            return f"!({self.truth(depth + 1)})"
        op = self.rng.choice(["&&", "||", "==", "!="])
        return f"({self.truth(depth + 1)}) {op} ({self.truth(depth + 1)})"

    def block(self, depth: int) -> str:
        """Some statements with names of their own."""
        names, mutable = list(self.names), list(self.mutable)
        body = " ".join(self.statement(depth) for _ in range(self.rng.randrange(1, 5)))
        self.names, self.mutable = names, mutable
        return f"{{ {body} }}"

    def statement(self, depth: int) -> str:
        """A statement of any kind."""
        pick = self.rng.randrange(12)
        if pick < 3 or not self.mutable:
            self.made += 1
            name, value = f"v{self.made}", self.number()
            self.names.append(name)
            self.mutable.append(name)
            return f"let mut {name}: int32 = {value};"
        if pick < 6:
            return f"{self.rng.choice(self.mutable)} = {self.number()};"
        if pick < 8 or depth > 2:
            return f"out[i * 8 + {self.rng.randrange(8)}] = {self.number()};"
        if pick == 8:
            other = f" else {self.block(depth + 1)}" if self.rng.random() < 0.5 else ""
            return f"if {self.truth()} {self.block(depth + 1)}{other}"
        if pick == 9:
            self.made += 1
            low, name = self.number(2), f"k{self.made}"
            self.names.append(name)
            body = self.block(depth + 1)
            self.names.pop()
            span = self.rng.randrange(4)
            return f"for {name} = {low} to ({low}) + {span} {body}"
        if pick == 10:
            self.made += 1
            name = f"w{self.made}"
            self.names.append(name)
            body = self.block(depth + 1)
            test = self.truth(2)
            self.names.pop()
            return (f"{{ let mut {name}: int32 = 0; while {name} < 3 && ({test}) "
                    f"{{ {name} = {name} + 1; {body} }} }}")  # fmt: skip
        return (
            f"if {self.truth()} {{ return; }}" if self.rng.random() < 0.2 else self.block(depth + 1)
        )


class RandomTiles(RandomKernel):
    """Also loads and stores of one accumulator, with indices and strides of every kind."""

    def number(self, depth: int = 0) -> str:
        """A value, now and then one that facts are known of."""
        pick = self.rng.random()
        if pick < 0.25:
            return self.rng.choice(
                "at|n|block_idx_x|(thread_idx_x / 32)|length(c)|flags[0]|16|256|(at * 16)".split(
                    "|"
                )
            )
        if pick < 0.4 and depth < 3:
            return f"({self.number(depth + 1)}) * {self.rng.choice([4, 8, 16, 32])}"
        return super().number(depth)

    def truth(self, depth: int = 0) -> str:
        """A condition, now and then one that is read in each lane."""
        return "flags[thread_idx_x] > 0" if self.rng.random() < 0.3 else super().truth(depth)

    def statement(self, depth: int) -> str:
        """A statement, often a load or a store."""
        if self.rng.random() > 0.3:
            return super().statement(depth)
        number = self.number(1)
        index = self.rng.choice(
            [f"({number}) * 8", f"(({number}) & 63) * 8", f"({number}) & 1023",
             f"int64({number}) * 8i64", "0", "8", "at", "at * 8", "v0", "256"]
        )  # fmt: skip
        stride = self.rng.choice(
            ["16", "16", "24", "n", "n * 8", "(n & 3) * 8 + 16", "16 + (at & 8)", self.number(2)]
        )
        tile = f"{self.rng.choice(['c', 'c', 'd', 'tile'])}[{index}] stride {stride}"
        verb, way = self.rng.choice([("load", "from"), ("store", "to")])
        layout = self.rng.choice(["row", "col"])
        return f"{verb} z (accumulator 16x16x16 s32) {way} {tile} {layout};"
