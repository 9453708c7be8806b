/** Two texts that differ somewhere in the middle: what both begin with, what differs, what both end with. */
export interface Difference {
  start: string;
  one: string;
  other: string;
  end: string;
}

export function difference(one: string, other: string): Difference {
  const shorter = Math.min(one.length, other.length);
  let start = 0;
  while (start < shorter && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < shorter - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  return {
    start: one.slice(0, start),
    one: one.slice(start, one.length - end),
    other: other.slice(start, other.length - end),
    end: end ? one.slice(-end) : "",
  };
}
