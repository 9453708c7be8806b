/** Renders a conversation a moment after the last change, and keeps what is shown until the new rendering is there. */
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { keyGeneration, post } from "../api/client.ts";
import type { Reasoning, Rendered } from "../api/contract.ts";
import { bodyOf, DraftError, type Draft } from "./draft.ts";

export interface Rendering {
  rendered: Rendered | null;
  error: Error | null;
  /** What is shown is not of what is written now: from the change on, not only once it is asked for. */
  isStale: boolean;
}

const PAUSE_MS = 180;

export function useRendering(draft: Draft, family: string, reasoning: Reasoning, again: unknown = 0): Rendering {
  const { enabled, effort } = reasoning;
  const of = [draft, family, enabled, effort, again, keyGeneration.value];
  const found = useSignal<{ of: readonly unknown[]; rendered: Rendered | null; error: Error | null }>({ of: [], rendered: null, error: null });
  useEffect(() => {
    const aborter = new AbortController();
    const ask = async () => {
      try {
        const body = bodyOf(draft, family, { enabled, effort });
        const rendered = await post<Rendered>("render", body, aborter.signal);
        found.value = { of, rendered, error: null };
      } catch (error) {
        if (!aborter.signal.aborted) found.value = { of, rendered: error instanceof DraftError ? found.peek().rendered : null, error: error as Error };
      }
    };
    const timer = setTimeout(ask, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, of);
  const { rendered, error } = found.value;
  return { rendered, error, isStale: of.some((value, index) => value !== found.value.of[index]) };
}
