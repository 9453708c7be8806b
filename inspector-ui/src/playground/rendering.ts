/** Renders a conversation a moment after the last change, and keeps what is shown until the new rendering is there. */
import { useEffect } from "preact/hooks";
import { useSignal, type ReadonlySignal } from "@preact/signals";
import { keyGeneration, post } from "../api/client.ts";
import type { Reasoning, Rendered } from "../api/contract.ts";
import { bodyOf, DraftError, type Draft } from "./draft.ts";

export interface Rendering {
  rendered: Rendered | null;
  error: Error | null;
  isStale: boolean;
}

const PAUSE_MS = 180;

export function useRendering(draft: Draft, family: string, reasoning: Reasoning, again: unknown = 0): ReadonlySignal<Rendering> {
  const state = useSignal<Rendering>({ rendered: null, error: null, isStale: true });
  const { enabled, effort } = reasoning;
  useEffect(() => {
    const aborter = new AbortController();
    state.value = { ...state.peek(), isStale: true };
    const ask = async () => {
      try {
        const body = bodyOf(draft, family, { enabled, effort });
        const rendered = await post<Rendered>("render", body, aborter.signal);
        state.value = { rendered, error: null, isStale: false };
      } catch (error) {
        if (!aborter.signal.aborted) state.value = { rendered: error instanceof DraftError ? state.peek().rendered : null, error: error as Error, isStale: false };
      }
    };
    const timer = setTimeout(ask, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [draft, family, enabled, effort, again, keyGeneration.value]);
  return state;
}
