/** The live list and the gauge, kept up to date by one stream while the page is visible. */
import { effect, signal } from "@preact/signals";
import { ApiFailure, get, keyGeneration, needsKey } from "./client.ts";
import { events } from "./events.ts";
import type { About, Gauge, Requests, Summary } from "./contract.ts";

export const about = signal<About | null>(null);
export const summaries = signal<Summary[]>([]);
export const gauge = signal<Gauge | null>(null);
/** null: not yet connected; a message: why not. */
export const connection = signal<"connecting" | "live" | "paused" | { lost: string }>("connecting");
/** The list was received once: an empty one is a fact. */
export const isKnown = signal(false);
/** Somebody looks at top alternatives: new requests record them, which costs decode speed. */
export const wantsAlternatives = signal(false);

const RETRY_MS = 1500;

/** Starts following the server; returns how to stop. A hidden page holds no stream. */
export function follow(): () => void {
  const isVisible = signal(!document.hidden);
  const seen = () => (isVisible.value = !document.hidden);
  document.addEventListener("visibilitychange", seen);
  const stop = effect(() => {
    keyGeneration.value;
    const alternatives = wantsAlternatives.value;
    if (!isVisible.value || needsKey.value) {
      connection.value = "paused";
      return;
    }
    const aborter = new AbortController();
    void keepFollowing(alternatives, aborter.signal);
    return () => aborter.abort();
  });
  return () => {
    document.removeEventListener("visibilitychange", seen);
    stop();
  };
}

async function keepFollowing(alternatives: boolean, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      connection.value = "connecting";
      about.value = await get<About>("about", signal);
      const url = "/inspect/api/events" + (alternatives ? "?alternatives=1" : "");
      let isFirst = true;
      for await (const { event, data } of events(url, { signal })) {
        connection.value = "live";
        if (event === "requests") {
          take(JSON.parse(data), isFirst);
          isFirst = false;
        } else if (event === "cache") gauge.value = JSON.parse(data);
      }
      connection.value = { lost: "the stream ended" };
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiFailure && error.status === 401) return;
      connection.value = { lost: error instanceof Error ? error.message : String(error) };
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function take(update: Requests, isWhole: boolean): void {
  isKnown.value = true;
  summaries.value = merged(isWhole ? [] : summaries.value, update);
}

/** The list after an update, newest first. */
export function merged(before: Summary[], update: Requests): Summary[] {
  const changed = new Set(update.requests.map(({ id }) => id));
  const gone = new Set(update.gone ?? []);
  const kept = before.filter(({ id }) => !changed.has(id) && !gone.has(id));
  return [...update.requests, ...kept].sort((one, other) => other.number - one.number);
}
