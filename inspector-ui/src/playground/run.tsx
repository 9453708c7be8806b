/** Sends the conversation on the road of every client, and shows the answer as it comes. */
import { useEffect, useLayoutEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { asked } from "../api/client.ts";
import type { Family } from "../api/contract.ts";
import { split } from "../api/events.ts";
import { grown, type Answer, type Chunk } from "../logic/answer.ts";
import { address } from "../shell/route.ts";
import { t } from "../text/index.ts";

interface Props {
  family: Family;
  /** null: there is nothing that could be run. */
  request: Record<string, unknown> | null;
  /** The request is not yet of what is written: a run waits for the one that is. */
  isStale: boolean;
  onRan: () => void;
}

export function Run({ family, request, isStale, onRan }: Props) {
  const isWanted = useSignal(false);
  const answer = useSignal<Answer | null>(null);
  const running = useSignal<AbortController | null>(null);
  const id = useSignal<string | null>(null);
  const problem = useSignal<string | null>(null);
  useEffect(() => () => running.peek()?.abort(), []);

  const run = async () => {
    const aborter = new AbortController();
    running.value = aborter;
    answer.value = { reasoning: "", text: "" };
    problem.value = id.value = null;
    try {
      const body = JSON.stringify({ ...request, stream: true });
      const response = await asked("/v1/chat/completions", { method: "POST", headers: { "content-type": "application/json" }, body, signal: aborter.signal });
      id.value = response.headers.get("x-request-id")?.replace(/^req_/, "") ?? null;
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (let held = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        const { whole, rest } = split(held + value);
        held = rest;
        for (const { data } of whole) if (data !== "[DONE]") take(JSON.parse(data));
      }
    } catch (error) {
      if (!aborter.signal.aborted) problem.value = (error as Error).message;
    }
    running.value = null;
    onRan();
  };
  const take = (chunk: Chunk) => {
    if (chunk.error) problem.value = chunk.error.message;
    answer.value = grown(answer.value!, chunk);
  };
  const canRun = family.can_run && (request !== null || isStale);
  useLayoutEffect(() => {
    if (!isWanted.value || isStale) return;
    isWanted.value = false;
    if (request) void run();
  }, [isWanted.value, isStale]);
  return (
    <section class="run-box" aria-label={t("play.answer")}>
      <p>
        {running.value ? (
          <button type="button" onClick={() => running.value?.abort()}>
            {t("play.stop")}
          </button>
        ) : (
          <button type="button" class="primary" disabled={!canRun} aria-busy={isWanted.value} onClick={() => (isWanted.value = true)}>
            {t("play.run")}
          </button>
        )}
        {!family.can_run && <span class="note">{t("play.cannotRun")}</span>}
        {running.value && <span class="note">{t("play.running")}</span>}
        {id.value && !running.value && <a href={address({ view: "request", id: id.value, tab: "panels" })}>{t("play.openRequest")}</a>}
      </p>
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {answer.value && (
        <pre class="mono answer" aria-live="polite" data-testid="run-answer">
          {answer.value.reasoning && <i>{answer.value.reasoning}</i>}
          {answer.value.text}
        </pre>
      )}
    </section>
  );
}
