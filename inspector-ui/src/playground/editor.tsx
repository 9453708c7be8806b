/** Edits every message, its thinking and its calls, and the tools. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../text/index.ts";
import { message, type Draft, type DraftMessage } from "./draft.ts";

const ROLES = ["system", "user", "assistant", "tool"] as const;
const EXAMPLE_CALLS = '[{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Rome\\"}"}}]';

export function Editor({ draft, onChange }: { draft: Draft; onChange: (draft: Draft) => void }) {
  const { messages } = draft;
  const put = (index: number, changes: Partial<DraftMessage>) =>
    onChange({ ...draft, messages: messages.map((item, at) => (at === index ? { ...item, ...changes } : item)) });
  const move = (index: number, by: number) => {
    const moved = [...messages];
    const [item] = moved.splice(index, 1);
    moved.splice(index + by, 0, item);
    onChange({ ...draft, messages: moved });
  };
  const next = messages[messages.length - 1]?.role === "user" ? "assistant" : "user";
  return (
    <div class="editor">
      <h2>{t("play.messages")}</h2>
      <ol>
        {messages.map((item, index) => (
          <li key={item.key} class={`draft-message role-${item.role}`}>
            <header>
              <select aria-label={t("play.role")} value={item.role} onChange={(event) => put(index, { role: event.currentTarget.value as DraftMessage["role"] })}>
                {ROLES.map((role) => (
                  <option key={role} value={role}>
                    {t(`role.${role}`)}
                  </option>
                ))}
              </select>
              {item.role === "tool" && (
                <label class="call-id">
                  {t("play.callId")}
                  <input value={item.callId} onInput={(event) => put(index, { callId: event.currentTarget.value })} />
                </label>
              )}
              {item.role === "assistant" && (
                <>
                  <label>
                    <input type="checkbox" checked={item.reasoning !== null} onChange={(event) => put(index, { reasoning: event.currentTarget.checked ? "" : null })} />
                    {t("play.addReasoning")}
                  </label>
                  <label>
                    <input type="checkbox" checked={item.calls !== null} onChange={(event) => put(index, { calls: event.currentTarget.checked ? EXAMPLE_CALLS : null })} />
                    {t("play.addCalls")}
                  </label>
                </>
              )}
              <span class="tools">
                <button type="button" disabled={index === 0} aria-label={t("play.up")} onClick={() => move(index, -1)}>
                  ↑
                </button>
                <button type="button" disabled={index === messages.length - 1} aria-label={t("play.down")} onClick={() => move(index, 1)}>
                  ↓
                </button>
                <button type="button" aria-label={t("play.remove")} onClick={() => onChange({ ...draft, messages: messages.filter((_, at) => at !== index) })}>
                  ✕
                </button>
              </span>
            </header>
            {item.role === "assistant" && item.reasoning !== null && (
              <Area label={t("play.reasoning")} value={item.reasoning} className="reasoning" onInput={(reasoning) => put(index, { reasoning })} />
            )}
            <Area label={t("play.content")} value={item.content} onInput={(content) => put(index, { content })} />
            {item.role === "assistant" && item.calls !== null && (
              <Area label={t("play.calls")} value={item.calls} className="mono" onInput={(calls) => put(index, { calls })} />
            )}
          </li>
        ))}
      </ol>
      <button type="button" onClick={() => onChange({ ...draft, messages: [...messages, message(next, "")] })}>
        + {t("play.addMessage")}
      </button>
      <h2>{t("play.tools")}</h2>
      <Area label={t("play.toolsHint")} value={draft.tools} className="mono" onInput={(tools) => onChange({ ...draft, tools })} />
    </div>
  );
}

const TALLEST = 260;

/** A text field as high as its text. */
function Area({ label, value, className = "", onInput }: { label: string; value: string; className?: string; onInput: (value: string) => void }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const element = field.current!;
    element.style.height = "0";
    element.style.height = `${Math.min(TALLEST, element.scrollHeight + 2)}px`;
  }, [value]);
  return <textarea ref={field} aria-label={label} placeholder={label} class={className} value={value} spellcheck={false} onInput={(event) => onInput(event.currentTarget.value)} />;
}
