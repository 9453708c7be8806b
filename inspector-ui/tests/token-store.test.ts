import assert from "node:assert/strict";
import { test } from "node:test";
import type { Segment, Span, TokenColumns } from "../src/api/contract.ts";
import { PAGE, TokenStore } from "../src/link/token-store.ts";

/** Tokens of uneven length: 1 to 9 characters, so that guessing by proportion is wrong; every 50th pair shares a character. */
function made(total: number): { columns: TokenColumns; text: number; segments: Segment[] } {
  const utf16: Span[] = [];
  let at = 0;
  for (let token = 0; token < total; token += 1) {
    const length = token < total / 2 ? 1 + (token % 2) : 4 + (token % 6);
    if (token % 50 === 49) utf16.push(utf16[token - 1]);
    else {
      utf16.push([at, at + length]);
      at += length;
    }
  }
  const column = <T>(value: T) => Array.from({ length: total }, () => value);
  const columns = { start: 0, end: total, total, ids: column(1), bytes: column("61"), text: column("a"), flags: column(0), utf16, segments: column(0) };
  const segment: Segment = { index: 0, kind: "text", role: "user", origin: "client", tokens: [0, total], utf16: [0, at], bytes: [0, at], message: 0 };
  return { columns, text: at, segments: [segment] };
}

function slice(columns: TokenColumns, start: number, end: number): TokenColumns {
  const cut = <T>(values: T[]) => values.slice(start, end);
  const { total, ids, bytes, text, flags, utf16, segments } = columns;
  return { start, end, total, ids: cut(ids), bytes: cut(bytes), text: cut(text), flags: cut(flags), utf16: cut(utf16), segments: cut(segments) };
}

const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

test("units are the tokens of any stretch, without gaps, and tokens that share a character are one unit", () => {
  const { columns, text, segments } = made(3 * PAGE + 7);
  const store = new TokenStore(columns.total, segments, text, null);
  store.put(columns);
  for (const span of [[0, 50], [997, 1100], [0, text], [text - 3, text]] as Span[]) {
    const units = store.units(span);
    assert.equal(units[0].utf16[0], span[0]);
    assert.equal(units[units.length - 1].utf16[1], span[1]);
    units.forEach((unit, index) => {
      if (index) assert.equal(unit.utf16[0], units[index - 1].utf16[1]);
      for (let token = unit.tokens[0]; token < unit.tokens[1]; token += 1) {
        assert.ok(columns.utf16[token][0] <= unit.utf16[0] && unit.utf16[1] <= columns.utf16[token][1]);
      }
    });
  }
  assert.deepEqual(store.units(columns.utf16[49])[0].tokens, [48, 50]);
});

test("any place of a long text finds its page in a few fetches, and only pages that are looked at are fetched", async () => {
  const { columns, text, segments } = made(100 * PAGE);
  let fetched = 0;
  const store = new TokenStore(columns.total, segments, text, async (start, end) => {
    fetched += 1;
    return slice(columns, start, end);
  });
  for (const share of [0.03, 0.31, 0.5, 0.77, 0.999]) {
    const place = Math.floor(text * share);
    const before = fetched;
    for (let tries = 0; tries < 8; tries += 1) {
      store.units([place, place + 1]);
      await settled();
    }
    const [unit] = store.units([place, place + 1]);
    assert.ok(columns.utf16[unit.tokens[0]][0] <= place && place < columns.utf16[unit.tokens[0]][1], `at ${share}`);
    assert.ok(fetched - before <= 7, `${fetched - before} pages`);
  }
});

test("until its page is here, a stretch is its segment", () => {
  const { columns, text, segments } = made(PAGE);
  const store = new TokenStore(columns.total, segments, text, () => new Promise(() => {}));
  assert.deepEqual(store.units([5, 9]), [{ utf16: [5, 9], tokens: [0, PAGE] }]);
});

test("a page that did not come is asked for again later, not at once", async () => {
  const { columns, text, segments } = made(PAGE);
  let fetched = 0;
  Object.assign(globalThis, { window: { setTimeout: () => 0 } });
  const store = new TokenStore(columns.total, segments, text, () => {
    fetched += 1;
    return Promise.reject(new Error("away"));
  });
  store.pageOf(0);
  await settled();
  store.pageOf(0);
  assert.equal(fetched, 1);
});
