/**
 * Causal attention while `generated` tokens follow a prompt of `prompt` tokens: which cells (query row, key column) are computed at a step.
 * Step 0 is the prompt; step s computes the token behind s - 1 generated ones.
 */
export interface AttentionStep {
  step: number;
  /** Tokens in the context at this step. */
  length: number;
  /** Rows whose keys, values and attention are computed at this step. */
  rows: [number, number];
  /** Score cells computed at this step. */
  cells: number;
}

export function attentionStep(prompt: number, step: number, hasCache: boolean): AttentionStep {
  const length = prompt + step;
  const first = hasCache && step > 0 ? length - 1 : 0;
  return { step, length, rows: [first, length], cells: cellsOf(length) - cellsOf(first) };
}

/** Cells computed in all steps up to `step`. */
export function cellsUpTo(prompt: number, step: number, hasCache: boolean): number {
  let sum = 0;
  for (let index = 0; index <= step; index += 1) sum += attentionStep(prompt, index, hasCache).cells;
  return sum;
}

/** Rows (tokens through the whole model) computed in all steps up to `step`. */
export function rowsUpTo(prompt: number, step: number, hasCache: boolean): number {
  let sum = 0;
  for (let index = 0; index <= step; index += 1) {
    const { rows } = attentionStep(prompt, index, hasCache);
    sum += rows[1] - rows[0];
  }
  return sum;
}

/** Cells of a causal triangle: row r sees r + 1 keys. */
function cellsOf(rows: number): number {
  return (rows * (rows + 1)) / 2;
}
