/** A fact that is being fetched: loading, there, or failed; asked again when its address or the key changes. */
import { useLayoutEffect } from "preact/hooks";
import { useSignal, type ReadonlySignal } from "@preact/signals";
import { get, keyGeneration } from "./client.ts";

export type Loaded<T> = { is: "loading" } | { is: "there"; value: T } | { is: "failed"; error: Error };

/** Answers that were asked for before the view that shows them was there. */
const early = new Map<string, Promise<unknown>>();

/** Asks for what will be shown as soon as something else is known: saves its way to the server and back. Returns how to forget it. */
export function askEarly(paths: readonly string[]): () => void {
  for (const path of paths) {
    const answer = get(path);
    early.set(path, answer);
    answer.catch(() => early.delete(path)); // whoever needs it asks again, and shows what is wrong
  }
  return () => paths.forEach((path) => early.delete(path));
}

function answerOf<T>(path: string, signal: AbortSignal): Promise<T> {
  const answer = early.get(path);
  early.delete(path);
  return (answer as Promise<T> | undefined) ?? get<T>(path, signal);
}

/** `path` null: nothing to ask. `again` changing asks again and keeps what is shown until the new answer is there. */
export function useLoaded<T>(path: string | null, again: unknown = 0): ReadonlySignal<Loaded<T>> {
  const state = useSignal<Loaded<T>>({ is: "loading" });
  const shown = useSignal<string | null>(null);
  useLayoutEffect(() => {
    if (path === null) return;
    if (shown.peek() !== path) state.value = { is: "loading" };
    const aborter = new AbortController();
    answerOf<T>(path, aborter.signal).then(
      (value) => {
        if (aborter.signal.aborted) return;
        shown.value = path;
        state.value = { is: "there", value };
      },
      (error: Error) => {
        if (!aborter.signal.aborted) state.value = { is: "failed", error };
      },
    );
    return () => aborter.abort();
  }, [path, again, keyGeneration.value]);
  return state;
}
