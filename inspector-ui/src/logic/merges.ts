/** Byte-pair merges, one step at a time. Words are merged side by side: step `n` does the n-th merge of the whole text. */
import type { Word } from "../api/contract.ts";

export interface MergeStep {
  word: number;
  /** Which of the word's merges. */
  merge: number;
}

/** The order in which the steps are played: word by word, each by its own order (smallest rank first). */
export function mergeSteps(words: readonly Word[]): MergeStep[] {
  return words.flatMap((word, index) => word.merges.map((_, merge) => ({ word: index, merge })));
}

/** The symbols of a word (hexadecimal bytes) after its first `count` merges. */
export function symbolsAfter(word: Word, count: number): string[] {
  const symbols = [...word.symbols];
  for (const { at, left, right } of word.merges.slice(0, count)) {
    if (symbols[at] !== left || symbols[at + 1] !== right) {
      throw new Error(`merge at ${at}: got ${symbols[at]} ${symbols[at + 1]}, the table says ${left} ${right}`);
    }
    symbols.splice(at, 2, left + right);
  }
  return symbols;
}

/** How many merges of each word are done after `step` steps. */
export function doneAfter(words: readonly Word[], step: number): number[] {
  const done: number[] = [];
  let left = step;
  for (const word of words) {
    done.push(Math.min(left, word.merges.length));
    left -= done[done.length - 1];
  }
  return done;
}

const DECODER = new TextDecoder("utf-8", { fatal: true });

/** The bytes as text; null: no whole characters. */
export function textOf(hex: string): string | null {
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  try {
    return DECODER.decode(bytes);
  } catch {
    return null;
  }
}

/** Bytes apart, as people write them: `E6 97 A5`. */
export function spacedHex(hex: string): string {
  return (hex.match(/../g) ?? []).join(" ").toUpperCase();
}
