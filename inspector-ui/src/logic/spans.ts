/** Spans on an axis: [start, end), as everywhere in the contract. */
import type { Span } from "../api/contract.ts";

export function overlaps(one: Span, other: Span): boolean {
  return one[0] < other[1] && other[0] < one[1];
}

/** Index of the last item whose start is ≤ `position`; -1: none. `starts` ascend. */
export function lastAtOrBefore(count: number, startOf: (index: number) => number, position: number): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (startOf(middle) <= position) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Every item that overlaps `[start, end)`; items ascend and may touch or share a border. */
export function within<T>(items: readonly T[], spanOf: (item: T) => Span, [start, end]: Span): T[] {
  let index = Math.max(0, lastAtOrBefore(items.length, (at) => spanOf(items[at])[0], start));
  while (index > 0 && spanOf(items[index - 1])[1] > start) index -= 1;
  const found: T[] = [];
  for (; index < items.length && spanOf(items[index])[0] < end; index += 1) {
    if (spanOf(items[index])[1] > start) found.push(items[index]);
  }
  return found;
}
