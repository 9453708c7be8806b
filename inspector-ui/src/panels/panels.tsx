/** Five panels of one request over one token axis. */
import { useEffect, useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { get } from "../api/client.ts";
import type { Context, Conversation, Detail, Segments, TokenColumns, Wire } from "../api/contract.ts";
import { useLoaded } from "../api/loaded.ts";
import { useLinking } from "../link/linking.ts";
import { TokenStore } from "../link/token-store.ts";
import { Shown } from "../parts/state.tsx";
import { useKeys } from "../shell/keys.ts";
import { t, type Key } from "../text/index.ts";
import { ContextPanel } from "./context-panel.tsx";
import { ConversationPanel } from "./conversation-panel.tsx";
import { LinkLine } from "./link-line.tsx";
import { TemplatePanel } from "./template-panel.tsx";
import { TokensPanel } from "./tokens-panel.tsx";
import { WirePanel } from "./wire-panel.tsx";

const NAMES = ["wire", "conversation", "segments", "tokens"] as const;
type Name = (typeof NAMES)[number];

/** The panel that a digit stands for; null: none. */
export function panelOfKey(key: string): Name | "context" | null {
  return key >= "1" && key <= "5" ? (NAMES[Number(key) - 1] ?? "context") : null;
}

export function Panels({ detail }: { detail: Detail }) {
  const { id } = detail.summary;
  const total = detail.axis.prompt + detail.axis.output;
  const grown = `${detail.summary.state} ${total}`;
  const address = (name: Exclude<Name, "tokens"> | "context") => (detail.panels[name] ? `requests/${id}/${name}` : null);
  const wire = useLoaded<Wire>(address("wire"), grown).value;
  const conversation = useLoaded<Conversation>(address("conversation"), grown).value;
  const segments = useLoaded<Segments>(address("segments"), grown).value;
  const context = useLoaded<Context>(address("context"), grown).value;
  const tokens = useMemo(() => {
    if (segments.is !== "there") return null;
    const load = (start: number, end: number) => get<TokenColumns>(`requests/${id}/tokens?start=${start}&end=${end}`);
    return new TokenStore(total, segments.value.segments, segments.value.text.length, load);
  }, [segments]);

  const large = useSignal<Name | null>(null);
  const linking = useLinking();
  const chosen = useSignal<Name>(NAMES.find((name) => name === linking.awaitedPanel) ?? "conversation"); // on a narrow page one panel is shown at a time
  usePanelKeys(large, (name) => (chosen.value = name), total);

  const text = segments.is === "there" ? segments.value.text : "";
  const content = (name: Name) => {
    if (!detail.panels[name]) return <p class="empty">{t("panel.empty")}</p>;
    switch (name) {
      case "wire":
        return (
          <Shown of={wire}>
            {(value) => <WirePanel id={id} wire={value} text={text} tokens={tokens} segments={segments.is === "there" ? segments.value.segments : []} />}
          </Shown>
        );
      case "conversation":
        return (
          <Shown of={conversation}>
            {(value) => <ConversationPanel conversation={value} text={text} tokens={tokens} segments={segments.is === "there" ? segments.value.segments : []} />}
          </Shown>
        );
      case "segments":
        return <Shown of={segments}>{(value) => <TemplatePanel segments={value.segments} text={value.text} tokens={tokens!} />}</Shown>;
      case "tokens":
        return <Shown of={segments}>{(value) => <TokensPanel tokens={tokens!} segments={value.segments} />}</Shown>;
    }
  };
  return (
    <div class="panels" data-large={large.value ?? undefined} data-chosen={chosen.value}>
      <LinkLine total={total} tokens={tokens} segments={segments.is === "there" ? segments.value.segments : []} />
      <section class="panel context" aria-labelledby="panel-context">
        <header>
          <h2 id="panel-context">
            <kbd aria-hidden="true">5</kbd>
            {t("panel.context")}
          </h2>
        </header>
        {detail.panels.context ? <Shown of={context}>{(value) => <ContextPanel context={value} total={total} />}</Shown> : <p class="empty">{t("panel.empty")}</p>}
      </section>
      <div class="chooser" role="group" aria-label={t("panel.choose")}>
        {NAMES.map((name) => (
          <button key={name} type="button" aria-pressed={chosen.value === name} onClick={() => (chosen.value = name)}>
            {t(`panel.${name}`)}
          </button>
        ))}
      </div>
      <div class="columns">
        {NAMES.map((name, index) => (
          <section key={name} class={`panel ${name}`} aria-labelledby={`panel-${name}`}>
            <header>
              <h2 id={`panel-${name}`}>
                <kbd aria-hidden="true">{index + 1}</kbd>
                {t(`panel.${name}`)}
              </h2>
              <button
                type="button"
                class="maximise"
                aria-pressed={large.value === name}
                aria-label={large.value === name ? t("panel.minimise") : t("panel.maximise", { panel: t(`panel.${name}` as Key) })}
                onClick={() => (large.value = large.value === name ? null : name)}
              >
                {large.value === name ? "⤡" : "⤢"}
              </button>
            </header>
            {content(name)}
          </section>
        ))}
      </div>
    </div>
  );
}

function usePanelKeys(large: { value: Name | null }, choose: (name: Name) => void, total: number): void {
  const linking = useLinking();
  useEffect(() => () => linking.unpin(), []);
  useKeys((key, event) => {
    const pinned = linking.pinned.value;
    const panel = panelOfKey(key);
    if (panel) {
      if (panel !== "context") choose(panel);
      linking.focus(panel);
    } else if (key === "m") {
      const focused = document.activeElement?.closest<HTMLElement>("[data-panel]")?.dataset.panel as Name | undefined;
      large.value = large.value ? null : NAMES.find((name) => name === focused) ?? "segments";
    } else if (key === "f") linking.follows.value = !linking.follows.value;
    else if (key === "Escape" && pinned) linking.unpin();
    else if (key === "Enter" && linking.hovered.value && !document.activeElement?.matches("a, button")) linking.pin(linking.hovered.value);
    else if ((key === "ArrowLeft" || key === "ArrowRight") && (pinned || document.activeElement?.closest("[data-panel]"))) {
      const step = (event.shiftKey ? 10 : 1) * (key === "ArrowLeft" ? -1 : 1);
      const from = pinned ? (step < 0 ? pinned.tokens[0] : pinned.tokens[1] - 1) + step : 0;
      const token = Math.max(0, Math.min(total - 1, from));
      linking.hovered.value = null;
      linking.pinned.value = { tokens: [token, token + 1], from: "keyboard" };
    } else return false;
    return true;
  }, 2);
}
