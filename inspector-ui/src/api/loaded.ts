/** A fact that is being fetched: loading, there, or failed; asked again when its address or the key changes. */
import { useLayoutEffect } from "preact/hooks";
import { useSignal, type ReadonlySignal } from "@preact/signals";
import { get, keyGeneration } from "./client.ts";

export type Loaded<T> = { is: "loading" } | { is: "there"; value: T } | { is: "failed"; error: Error };

/** `path` null: nothing to ask. `again` changing asks again and keeps what is shown until the new answer is there. */
export function useLoaded<T>(path: string | null, again: unknown = 0): ReadonlySignal<Loaded<T>> {
  const state = useSignal<Loaded<T>>({ is: "loading" });
  const shown = useSignal<string | null>(null);
  useLayoutEffect(() => {
    if (path === null) return;
    if (shown.peek() !== path) state.value = { is: "loading" };
    const aborter = new AbortController();
    get<T>(path, aborter.signal).then(
      (value) => {
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
