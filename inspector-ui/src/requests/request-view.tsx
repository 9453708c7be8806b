/** One request: its figures, and three views of it. */
import { useLayoutEffect, useMemo } from "preact/hooks";
import type { Detail } from "../api/contract.ts";
import { askEarly, useLoaded } from "../api/loaded.ts";
import { summaries } from "../api/live.ts";
import { Linking, LinkingContext } from "../link/linking.ts";
import { count, milliseconds, perSecond } from "../logic/format.ts";
import { DecodeTab } from "../decode/decode-tab.tsx";
import { panelOfKey, Panels } from "../panels/panels.tsx";
import { Shown } from "../parts/state.tsx";
import { CauseBadge } from "../prefix/cause.tsx";
import { PrefixTab } from "../prefix/prefix-tab.tsx";
import { useKeys } from "../shell/keys.ts";
import { address, go, TABS, type Tab } from "../shell/route.ts";
import { locale, named, t } from "../text/index.ts";
import { FirstToken, RunState } from "./requests-view.tsx";

const PANELS_TO_COME = ["wire", "conversation", "segments", "context"];
const TAB_KEYS: Record<string, Tab> = { w: "panels", p: "prefix", d: "decode" };

export function RequestView({ id, tab }: { id: string; tab: Tab }) {
  const linking = useMemo(() => new Linking(), []);
  useLayoutEffect(() => linking.start(), []);
  const live = summaries.value.find((summary) => summary.id === id) ?? null;
  // what a running request has grown to is asked for again when it changes state, not with each token; most have ended when they are opened
  const detail = useLoaded<Detail>(`requests/${id}`, live?.state ?? "ended").value;
  useLayoutEffect(() => {
    // the panels follow as soon as it is known that there are some: of a request that runs or was refused, only then
    const mayHaveAll = live === null || (live.prompt_tokens !== null && live.total_ms !== null);
    return tab === "panels" && mayHaveAll ? askEarly(PANELS_TO_COME.map((name) => `requests/${id}/${name}`)) : undefined;
  }, []);
  const list = summaries.value;
  const index = list.findIndex((summary) => summary.id === id);
  const open = (offset: number) => {
    const next = index < 0 ? undefined : list[index + offset];
    if (next) go({ view: "request", id: next.id, tab });
    return next !== undefined;
  };
  useKeys((key) => {
    if (key === "j") return open(1);
    if (key === "k") return open(-1);
    if (key === "Escape" && !linking.pinned.value) {
      go({ view: "requests" });
      return true;
    }
    const panel = tab === "panels" ? panelOfKey(key) : null;
    if (panel) linking.focus(panel); // the panels, once there, see to it themselves
    if (panel || !(key in TAB_KEYS)) return panel !== null;
    go({ view: "request", id, tab: TAB_KEYS[key] });
    return true;
  }, 1);
  return (
    <LinkingContext.Provider value={linking}>
      <section class="request" aria-labelledby="request-title">
        <header class="title">
          <a class="back" href="#/requests">
            ← {t("request.back")}
          </a>
          <h1 id="request-title">{t("request.title", { number: live?.number ?? (detail.is === "there" ? detail.value.summary.number : "…") })}</h1>
          <span class="stepper">
            <button type="button" disabled={index <= 0} aria-label={t("request.previous")} onClick={() => open(-1)}>
              ↑
            </button>
            <button type="button" disabled={index < 0 || index >= list.length - 1} aria-label={t("request.next")} onClick={() => open(1)}>
              ↓
            </button>
          </span>
          {detail.is === "there" && <Figures detail={{ ...detail.value, summary: live ?? detail.value.summary }} />}
        </header>
        <nav class="tabs" aria-label={t("tab.label")}>
          {TABS.map((name) => (
            <a key={name} href={address({ view: "request", id, tab: name })} aria-current={name === tab ? "page" : undefined}>
              {t(`tab.${name}`)}
            </a>
          ))}
        </nav>
        <Shown of={detail}>
          {(value) => (tab === "panels" ? <Panels detail={value} /> : tab === "prefix" ? <PrefixTab detail={value} /> : <DecodeTab detail={value} />)}
        </Shown>
      </section>
    </LinkingContext.Provider>
  );
}

function Figures({ detail: { summary } }: { detail: Detail }) {
  const language = locale.value;
  const cached = (summary.cached_resident ?? 0) + (summary.cached_ssd ?? 0);
  return (
    <>
      <dl class="figures">
        <div>
          <dt>{t("requests.protocol")}</dt>
          <dd>
            {t(`protocol.${summary.protocol}`)} <small>{t(`transport.${summary.transport}`)}</small>
          </dd>
        </div>
        <div>
          <dt>{t("requests.client")}</dt>
          <dd title={summary.user_agent}>{summary.client || "–"}</dd>
        </div>
        <div>
          <dt>{t("requests.input")}</dt>
          <dd>{count(summary.prompt_tokens, language)}</dd>
        </div>
        <div>
          <dt>{t("requests.cached")}</dt>
          <dd>
            {count(summary.cached_resident === null ? null : cached, language)}{" "}
            {cached > 0 && <small>{summary.cached_resident ? t("requests.resident") : t("requests.ssd")}</small>}
          </dd>
        </div>
        <div>
          <dt>{t("requests.computed")}</dt>
          <dd>
            {count(summary.computed_tokens, language)} <CauseBadge cause={summary.cause} />
          </dd>
        </div>
        <div>
          <dt>{t("requests.ttft")}</dt>
          <dd>
            <FirstToken summary={summary} />
          </dd>
        </div>
        <div>
          <dt>{t("requests.output")}</dt>
          <dd>
            {count(summary.output_tokens, language)} <small>{perSecond(summary.decode_tokens_per_second, language)} {t("requests.speed")}</small>
          </dd>
        </div>
        <div>
          <dt>{t("time.total")}</dt>
          <dd>{milliseconds(summary.total_ms, language)}</dd>
        </div>
        <div>
          <dt>{t("requests.end")}</dt>
          <dd>{summary.end_reason ? named("end.", summary.end_reason) : <RunState state={summary.state} />}</dd>
        </div>
      </dl>
      {summary.num_choices > 1 && <p class="note">{t("request.choices", { count: summary.num_choices })}</p>}
      {summary.error && <p class="problem">{summary.state === "refused" ? t("request.refused", { error: summary.error }) : summary.error}</p>}
    </>
  );
}
