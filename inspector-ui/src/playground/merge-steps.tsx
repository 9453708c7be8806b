/** Byte-pair merges of any text, step by step. */
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { post } from "../api/client.ts";
import type { Family, Merges, Word } from "../api/contract.ts";
import { visibleToken } from "../logic/columns.ts";
import { count } from "../logic/format.ts";
import { doneAfter, mergeSteps, spacedHex, symbolsAfter, textOf } from "../logic/merges.ts";
import { locale, t } from "../text/index.ts";
import { chosenFamily, FamilyChoice } from "./family-choice.tsx";
import { Stepper } from "./stepper.tsx";

const PAUSE_MS = 180;

export function MergeSteps({ families }: { families: readonly Family[] }) {
  const family = chosenFamily(families);
  const text = useSignal("lower newest 日本 🙂");
  const found = useSignal<Merges | null>(null);
  const problem = useSignal<string | null>(null);
  const step = useSignal(0);
  useEffect(() => {
    const aborter = new AbortController();
    const timer = setTimeout(async () => {
      try {
        found.value = await post<Merges>("merges", { family: family.name, text: text.value }, aborter.signal);
        problem.value = null;
        step.value = 0;
      } catch (error) {
        if (!aborter.signal.aborted) problem.value = (error as Error).message;
      }
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [text.value, family.name]);
  return (
    <div class="merges">
      <p class="note">{t("merges.hint")}</p>
      <div class="controls">
        <FamilyChoice families={families} />
        <label class="grow">
          {t("merges.text")}
          <input value={text.value} spellcheck={false} onInput={(event) => (text.value = event.currentTarget.value)} data-testid="merge-text" />
        </label>
      </div>
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {found.value && <Steps words={found.value.words} step={step} />}
    </div>
  );
}

function Steps({ words, step }: { words: Word[]; step: ReturnType<typeof useSignal<number>> }) {
  const steps = mergeSteps(words);
  const at = Math.min(step.value ?? 0, steps.length);
  const done = doneAfter(words, at);
  const last = at > 0 ? steps[at - 1] : null;
  const next = steps[at] ?? null;
  const merge = last && words[last.word].merges[last.merge];
  return (
    <>
      <Stepper step={step as never} total={steps.length} />
      <p class="merge-line" role="status" data-testid="merge-line">
        {merge && (
          <>
            {t("merges.joins", { left: symbolText(merge.left), right: symbolText(merge.right) })} · {t("merges.rank", { rank: count(merge.rank, locale.value) })}
          </>
        )}
        {at === steps.length && ` ${t(steps.length || !words.length ? "merges.done" : "merges.none")}`}
      </p>
      <ol class="words">
        {words.map((word, index) => (
          <li key={index} class={next?.word === index || last?.word === index ? "current" : ""}>
            <span class="symbols" data-testid="symbols">
              {symbolsAfter(word, done[index]).map((symbol, place) => {
                const isJoined = last?.word === index && merge?.at === place;
                const upcoming = next?.word === index ? word.merges[next.merge].at : -1;
                const isNext = place === upcoming || place === upcoming + 1;
                return <Symbol key={place} hex={symbol} className={`${isJoined ? "joined" : ""} ${isNext && upcoming >= 0 ? "next" : ""}`} />;
              })}
            </span>
            {done[index] === word.merges.length && (
              <small class="ids">
                {t("merges.ids")} {word.ids.join(" ")}
              </small>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}

function Symbol({ hex, className }: { hex: string; className: string }) {
  const text = textOf(hex);
  return (
    <span class={`symbol ${className} ${text === null ? "bytes" : ""}`} title={spacedHex(hex)}>
      {text === null ? spacedHex(hex) : visibleToken(text)}
    </span>
  );
}

function symbolText(hex: string): string {
  const text = textOf(hex);
  return text === null ? spacedHex(hex) : `“${visibleToken(text)}”`;
}
