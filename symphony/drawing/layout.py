"""Where the parts of a drawing stand: layers from left to right, as few crossings as a few sweeps find. Pure.

The steps are those of Sugiyama, Tagawa and Toda ("Methods for Visual Understanding of Hierarchical System
Structures", 1981): break cycles, give layers, order each layer, place. The same parts and edges give the same
places. Lengths are in pixels.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

SWEEPS = 12
# Between layers: the least, and by how much more each line makes it, up to the most.
LAYER_GAP, LINE_GAP, MOST_GAP = 84.0, 0.3, 300.0
# Between the parts of a layer: the least, and the most where others are higher.
GAP, WIDE_GAP = 14.0, 44.0
# More layers than these are too wide to be read: then there are two columns.
MOST_LAYERS = 10
# How much height a long edge takes where it passes a layer.
PASSAGE = 6.0

Edge = tuple[str, str]


class Size(NamedTuple):
    """How much room a part takes."""

    width: float
    height: float


class Place(NamedTuple):
    """Where a part stands: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The height of its middle."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where all stands. ``passages`` has, by edge, where it passes layers between its ends, from left to right.

    An edge between two parts of one column, which there is only where the layers were too many, has None.

    ``width`` and ``height`` are those of the whole.
    """

    places: Mapping[str, Place]
    passages: Mapping[Edge, tuple[Place, ...] | None]
    width: float
    height: float


def layout(sizes: Mapping[str, Size], edges: Sequence[Edge], columns: Mapping[str, int]) -> Layout:
    """Place parts so that edges go from left to right. Parts without an edge are not placed here.

    Of two edges between the same parts the first decides. Parts of one layer are as wide as the widest of them.
    ``columns`` has the layer of each part, 0 on the right, for when their own layers would be too many.
    """
    edges = list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1]))
    ends = {end for edge in edges for end in edge}
    joined = [key for key in sizes if key in ends]
    forward = _without_cycles(joined, edges)
    layer_of = _layers(joined, list(dict.fromkeys(forward.values())))
    if max(layer_of.values(), default=0) >= MOST_LAYERS:
        layer_of = {key: columns[key] for key in joined}
        forward = {edge: _leftmost_first(edge, layer_of) for edge in edges}
    across = [edge for edge in edges if layer_of[edge[0]] != layer_of[edge[1]]]
    chains = {edge: _chain(edge, forward[edge], layer_of) for edge in across}
    layers = _ordered(joined, layer_of, chains)
    heights = {
        key: sizes[key].height if key in sizes else PASSAGE for layer in layers for key in layer
    }
    middles = _middles(layers, heights, chains)
    found = _placed(layers, sizes, heights, middles, chains)
    return replace(found, passages={edge: found.passages.get(edge) for edge in edges})


# --- layers ---


def _without_cycles(keys: Sequence[str], edges: Sequence[Edge]) -> dict[Edge, Edge]:
    """By edge, the edge in the direction in which it is drawn: those that close a cycle are turned round."""
    below: dict[str, list[str]] = {key: [] for key in keys}
    forward: dict[Edge, Edge] = {}
    for source, target in edges:
        if source in below[target]:
            forward[source, target] = target, source
        else:
            below[source].append(target)
    state = dict.fromkeys(keys, "new")
    for start in keys:
        stack = [(start, iter(below[start]))] if state[start] == "new" else []
        state[start] = "open" if stack else state[start]
        while stack:
            key, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                state[key] = "done"
                stack.pop()
            else:
                forward[key, step] = (step, key) if state[step] == "open" else (key, step)
                if state[step] == "new":
                    state[step] = "open"
                    stack.append((step, iter(below[step])))
    return forward


def _layers(keys: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """By part, its layer, 0 on the right: one more than what is right of it."""
    right: dict[str, list[str]] = {key: [] for key in keys}
    left: dict[str, list[str]] = {key: [] for key in keys}
    for source, target in edges:
        right[source].append(target)
        left[target].append(source)
    waiting = {key: len(right[key]) for key in keys}
    found = dict.fromkeys(keys, 0)
    ready = [key for key in keys if not waiting[key]]
    while ready:
        key = ready.pop(0)
        for other in left[key]:
            found[other] = max(found[other], found[key] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return found


def _leftmost_first(edge: Edge, layer_of: Mapping[str, int]) -> Edge:
    source, target = edge
    return edge if layer_of[source] >= layer_of[target] else (target, source)


def _chain(edge: Edge, forward: Edge, layer_of: Mapping[str, int]) -> tuple[str, ...]:
    """An edge from left to right, with a passage of its own in each layer between its ends."""
    left, right = forward
    between = range(layer_of[left] - 1, layer_of[right], -1)
    return (left, *(f"{edge[0]} > {edge[1]} @ {number}" for number in between), right)


# --- order ---


def _ordered(
    keys: Sequence[str], layer_of: Mapping[str, int], chains: Mapping[Edge, tuple[str, ...]]
) -> list[list[str]]:
    """The layers from left to right, each in the best order that was found."""
    depth = max(layer_of.values(), default=-1) + 1
    layers: list[list[str]] = [[] for _ in range(depth)]
    for key in keys:
        layers[depth - 1 - layer_of[key]].append(key)
    for chain in chains.values():
        first = depth - 1 - layer_of[chain[0]]
        for offset, passage in enumerate(chain[1:-1], 1):
            layers[first + offset].append(passage)
    left, right = _neighbours(chains)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, right)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for layer in layers[1:] if forth else layers[-2::-1]:
            _sort(layer, left if forth else right, layers)
        number = _crossings(layers, right)
        if number < fewest:
            best, fewest = [list(layer) for layer in layers], number
    return best


def _neighbours(
    chains: Mapping[Edge, tuple[str, ...]],
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """By part and passage, what it is joined with on its left, and on its right."""
    left: dict[str, list[str]] = {}
    right: dict[str, list[str]] = {}
    for chain in chains.values():
        for source, target in itertools.pairwise(chain):
            left.setdefault(target, []).append(source)
            right.setdefault(source, []).append(target)
    return left, right


def _sort(
    layer: list[str], beside: Mapping[str, list[str]], layers: Sequence[Sequence[str]]
) -> None:
    """Order a layer by the mean place of what its parts are joined with; those joined with nothing stay."""
    at = {key: index / len(other) for other in layers for index, key in enumerate(other)}
    means = {
        key: sum(at[other] for other in beside[key]) / len(beside[key])
        if beside.get(key)
        else at[key]
        for key in layer
    }
    layer.sort(key=lambda key: means[key])


def _crossings(layers: Sequence[Sequence[str]], right: Mapping[str, list[str]]) -> int:
    """How many pairs of edges cross."""
    total = 0
    for layer, after in itertools.pairwise(layers):
        at = {key: index for index, key in enumerate(after)}
        seen: list[int] = []
        for key in layer:
            ends = sorted(at[other] for other in right.get(key, ()))
            total += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
            for end in ends:
                bisect.insort(seen, end)
    return total


# --- places ---


def _middles(
    layers: Sequence[Sequence[str]],
    heights: Mapping[str, float],
    chains: Mapping[Edge, tuple[str, ...]],
) -> dict[str, float]:
    """By part, the height of its middle: as near as there is room to that of what it is joined with."""
    left, right = _neighbours(chains)
    gaps = _gaps(layers, heights)
    middles: dict[str, float] = {}
    for layer, gap in zip(layers, gaps, strict=True):
        middles.update(_apart(layer, dict.fromkeys(layer, 0.0), heights, gap))
    for sweep in range(SWEEPS):
        for layer, gap in list(zip(layers, gaps, strict=True))[:: 1 if sweep % 2 == 0 else -1]:
            wished = {}
            for key in layer:
                beside = [*left.get(key, ()), *right.get(key, ())] or [key]
                wished[key] = sum(middles[other] for other in beside) / len(beside)
            middles.update(_apart(layer, wished, heights, gap))
    return middles


def _gaps(layers: Sequence[Sequence[str]], heights: Mapping[str, float]) -> list[float]:
    """By layer, the gap between its parts: where another layer is higher, there is room for more."""
    filled = [sum(heights[key] for key in layer) for layer in layers]
    highest = max(
        (sum_ + GAP * len(layer) for layer, sum_ in zip(layers, filled, strict=True)), default=0.0
    )
    return [
        min(WIDE_GAP, max(GAP, (highest - sum_) / len(layer) / 2))
        for layer, sum_ in zip(layers, filled, strict=True)
    ]


def _apart(
    layer: Sequence[str], wished: Mapping[str, float], heights: Mapping[str, float], gap: float
) -> dict[str, float]:
    """The middles that are nearest to those wished for, by least squares, in order and with the gap between them."""
    offsets: list[float] = []
    for index, key in enumerate(layer):
        step = (heights[layer[index - 1]] + heights[key]) / 2 + gap if index else 0.0
        offsets.append((offsets[-1] if offsets else 0.0) + step)
    blocks: list[
        tuple[float, int]
    ] = []  # the mean of parts that stand side by side, and how many they are
    for key, offset in zip(layer, offsets, strict=True):
        mean, count = wished[key] - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, number = blocks.pop()
            mean = (before * number + mean * count) / (number + count)
            count += number
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    return {key: mean + offset for key, mean, offset in zip(layer, means, offsets, strict=True)}


def _placed(
    layers: Sequence[Sequence[str]],
    sizes: Mapping[str, Size],
    heights: Mapping[str, float],
    middles: Mapping[str, float],
    chains: Mapping[Edge, tuple[str, ...]],
) -> Layout:
    top = min((middles[key] - heights[key] / 2 for key in middles), default=0.0)
    places: dict[str, Place] = {}
    left, _ = _neighbours(chains)
    x = 0.0
    for index, layer in enumerate(layers):
        if index:
            lines = sum(len(left.get(key, ())) for key in layer)
            x += min(MOST_GAP, LAYER_GAP + LINE_GAP * lines)
        width = max((sizes[key].width for key in layer if key in sizes), default=0.0)
        for key in layer:
            places[key] = Place(x, middles[key] - heights[key] / 2 - top, width, heights[key])
        x += width
    return Layout(
        places={key: place for key, place in places.items() if key in sizes},
        passages={
            edge: tuple(places[key] for key in chain[1:-1]) for edge, chain in chains.items()
        },
        width=x,
        height=max((place.y + place.height for place in places.values()), default=0.0),
    )
