/** A conversation to edit on one side, what the model would see on the other; and a run of it. */
import { useSignal } from "@preact/signals";
import { get } from "../api/client.ts";
import type { Conversation, Family } from "../api/contract.ts";
import { summaries } from "../api/live.ts";
import { t } from "../text/index.ts";
import { DraftError, draftOf, example } from "./draft.ts";
import { Editor } from "./editor.tsx";
import { chosenFamily, chosenReasoning, ControlChoice, FamilyChoice } from "./family-choice.tsx";
import { controlName, draft } from "./playground-state.ts";
import { useRendering } from "./rendering.ts";
import { Result } from "./result.tsx";
import { Run } from "./run.tsx";

export function Compose({ families }: { families: readonly Family[] }) {
  const family = chosenFamily(families);
  const ran = useSignal(0); // what is reusable changes with each run
  const rendering = useRendering(draft.value!, family.name, chosenReasoning(family), `${ran.value} ${summaries.value[0]?.state}`);
  return (
    <div class="compose">
      <div class="controls">
        <FamilyChoice families={families} />
        {family.controls.length ? (
          <ControlChoice family={family} label={t("play.thinking")} value={controlName.value} onChange={(name) => (controlName.value = name)} />
        ) : (
          <span class="note">{t("play.noControl")}</span>
        )}
        <Beginning />
      </div>
      <div class="sides">
        <Editor draft={draft.value!} onChange={(changed) => (draft.value = changed)} />
        <div class={`result ${rendering.isStale ? "stale" : ""}`} aria-label={t("play.result")} role="region">
          <p class="working note">{t("play.working")}</p>
          {rendering.error && <Fault error={rendering.error} />}
          {rendering.rendered && <Result rendered={rendering.rendered} family={family} />}
          <Run family={family} request={rendering.error ? null : (rendering.rendered?.chat_request ?? null)} isStale={rendering.isStale} onRan={() => (ran.value += 1)} />
        </div>
      </div>
    </div>
  );
}

function Fault({ error }: { error: Error }) {
  const text = error instanceof DraftError ? t("play.badJson", { field: t(`play.${error.field}`), reason: error.message }) : error.message;
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

function Beginning() {
  const problem = useSignal<Error | null>(null);
  const begin = async (id: string) => {
    problem.value = null;
    if (!id) return;
    if (id === "example") draft.value = example();
    else {
      try {
        draft.value = draftOf(await get<Conversation>(`requests/${id}/conversation`));
      } catch (error) {
        problem.value = error as Error;
      }
    }
  };
  return (
    <label>
      {t("play.load")}
      <select value="" onChange={(event) => void begin(event.currentTarget.value)}>
        <option value="">…</option>
        <option value="example">{t("play.example")}</option>
        {summaries.value
          .filter(({ prompt_tokens }) => prompt_tokens !== null)
          .map(({ id, number }) => (
            <option key={id} value={id}>
              {t("play.fromRequest", { number })}
            </option>
          ))}
      </select>
      {problem.value && <span class="problem">{problem.value.message}</span>}
    </label>
  );
}
