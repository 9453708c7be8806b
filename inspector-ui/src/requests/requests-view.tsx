/** The live list: one row a request, newest first. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Summary } from "../api/contract.ts";
import { about, connection, isKnown, summaries } from "../api/live.ts";
import { count, milliseconds, perSecond, shortNumber } from "../logic/format.ts";
import { useKeys } from "../shell/keys.ts";
import { address } from "../shell/route.ts";
import { locale, named, t, type Key } from "../text/index.ts";
import { CauseBadge } from "../prefix/cause.tsx";

const COLUMNS: [className: string, text: Key][] = [
  ["number", "requests.number"],
  ["state", "requests.state"],
  ["protocol", "requests.protocol"],
  ["client", "requests.client"],
  ["input", "requests.input"],
  ["cached", "requests.cached"],
  ["computed", "requests.computed"],
  ["ttft", "requests.ttft"],
  ["output", "requests.output"],
  ["speed", "requests.speed"],
  ["end", "requests.end"],
];

const SPLIT = ["queue", "restore", "prefill"] as const;

export function RequestsView() {
  const marked = useSignal<string | null>(null);
  const list = summaries.value;
  const early = useRef(0);
  /** The marked row's link has the focus: Enter opens it. */
  const mark = (row: number) => {
    const { id } = list[Math.max(0, Math.min(list.length - 1, row))];
    marked.value = id;
    document.getElementById(`request-${id}`)?.querySelector("a")?.focus();
  };
  useKeys((key) => {
    if (key !== "j" && key !== "k") return false;
    const step = key === "j" ? 1 : -1;
    if (list.length) mark(list.findIndex(({ id }) => id === marked.value) + step);
    else if (!isKnown.value) early.current = Math.max(0, early.current + step);
    return true;
  }, 1);
  useLayoutEffect(() => {
    // what was pressed while the list was on its way counts as if it had been there
    if (early.current && list.length) mark(early.current - 1);
    early.current = 0;
  }, [isKnown.value]);

  return (
    <section class="requests" aria-labelledby="requests-title">
      <header class="title">
        <h1 id="requests-title">{t("requests.title")}</h1>
        {list.length > 0 && <p>{t("requests.count", { count: list.length })}</p>}
      </header>
      {list.length ? (
        <table class="list" data-testid="live-list">
          <thead>
            <tr>
              {COLUMNS.map(([className, text]) => (
                <th key={text} scope="col" class={className}>
                  {t(text)}
                  {className === "ttft" && <Split />}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {list.map((summary) => (
              <Row key={summary.id} summary={summary} isMarked={marked.value === summary.id} />
            ))}
          </tbody>
        </table>
      ) : (
        <Empty />
      )}
    </section>
  );
}

/** What the colours of the bars below are, in their order. */
function Split() {
  return (
    <small class="split">
      {SPLIT.map((name) => (
        <span key={name}>
          <i class={`swatch bar-${name}`} aria-hidden="true" />
          {t(`time.${name}`)}
        </span>
      ))}
      <span>{t("requests.milliseconds")}</span>
    </small>
  );
}

function Row({ summary, isMarked }: { summary: Summary; isMarked: boolean }) {
  const language = locale.value;
  const to = address({ view: "request", id: summary.id, tab: "panels" });
  const open = (event: MouseEvent) => {
    if (!(event.target as Element).closest("a")) location.hash = to;
  };
  const cell = (className: string, text: Key, content: preact.ComponentChildren) => (
    <td class={className} data-label={t(text)}>
      {content}
    </td>
  );
  return (
    <tr id={`request-${summary.id}`} class={isMarked ? "marked" : ""} data-state={summary.state} onClick={open}>
      <th scope="row" class="number">
        <a href={to} aria-label={t("requests.open", { number: summary.number })}>
          {summary.number}
        </a>
      </th>
      {cell("state", "requests.state", <RunState state={summary.state} />)}
      {cell("protocol", "requests.protocol", <>{t(`protocol.${summary.protocol}`)} <small>{t(`transport.${summary.transport}`)}</small></>)}
      {cell("client", "requests.client", <span title={summary.user_agent}>{summary.client || "–"}</span>)}
      {cell("input", "requests.input", count(summary.prompt_tokens, language))}
      {cell("cached", "requests.cached", <Cached summary={summary} />)}
      {cell("computed", "requests.computed", <>{count(summary.computed_tokens, language)} <CauseBadge cause={summary.cause} /></>)}
      {cell("ttft", "requests.ttft", <FirstToken summary={summary} />)}
      {cell("output", "requests.output", count(summary.output_tokens, language))}
      {cell("speed", "requests.speed", perSecond(summary.decode_tokens_per_second, language))}
      {cell("end", "requests.end", <span class={summary.error ? "problem" : ""} title={summary.error ?? undefined}>{summary.end_reason ? named("end.", summary.end_reason) : "…"}</span>)}
    </tr>
  );
}

const STATE_SIGNS = { queued: "○", prefill: "◔", decoding: "◑", ended: "●", failed: "✕", refused: "✕", cancelled: "◌" };

export function RunState({ state }: { state: Summary["state"] }) {
  return (
    <span class={`run ${state}`}>
      <i aria-hidden="true">{STATE_SIGNS[state]}</i>
      {t(`run.${state}`)}
    </span>
  );
}

function Cached({ summary }: { summary: Summary }) {
  const { cached_resident: resident, cached_ssd: ssd } = summary;
  if (resident === null && ssd === null) return <>–</>;
  const language = locale.value;
  return (
    <>
      {count((resident ?? 0) + (ssd ?? 0), language)}{" "}
      {resident ? <small>{t("requests.resident")}</small> : ssd ? <small>{t("requests.ssd")}</small> : null}
    </>
  );
}

/** The time to the first token, and a bar of what it was spent on. */
export function FirstToken({ summary }: { summary: Summary }) {
  const language = locale.value;
  const parts = [
    ["queue", summary.queue_ms],
    ["restore", summary.restore_ms],
    ["prefill", summary.prefill_ms],
  ] as const;
  const sum = parts.reduce((total, [, value]) => total + (value ?? 0), 0);
  if (summary.ttft_ms === null && !sum) return <>–</>;
  const text = parts.map(([name, value]) => `${t(`time.${name}`)} ${milliseconds(value, language)}`).join(", ");
  return (
    <span class="ttft-split" title={text}>
      <span class="figure">{milliseconds(summary.ttft_ms ?? sum, language)}</span>
      <span class="bar" role="img" aria-label={text}>
        {sum > 0 && parts.map(([name, value]) => <i key={name} class={name} style={{ width: `${((value ?? 0) / sum) * 100}%` }} />)}
      </span>
      <small class="parts" aria-hidden="true">
        {parts.map(([, value]) => (value === null ? "–" : shortNumber(value, language))).join(" · ")}
      </small>
    </span>
  );
}

function Empty() {
  if (!isKnown.value) {
    return <p class="waiting" role="status">{typeof connection.value === "object" ? t("connection.lost", { reason: connection.value.lost }) : t("state.loading")}</p>;
  }
  const model = about.value?.model ?? "MODEL";
  return (
    <div class="empty">
      <h2>{t("requests.empty")}</h2>
      <p>{t("requests.emptyHint", { count: about.value?.max_requests ?? 200 })}</p>
      <pre class="mono" tabIndex={0}>
        {`curl ${location.origin}/v1/chat/completions -H 'content-type: application/json' \\\n  -d '{"model": "${model}", "messages": [{"role": "user", "content": "Hello"}]}'`}
      </pre>
      <dl class="tour">
        <Tour title="requests.tourPanels" hint="requests.tourPanelsHint" />
        <Tour title="requests.tourPrefix" hint="requests.tourPrefixHint" />
        <Tour title="requests.tourPlay" hint="requests.tourPlayHint" to={address({ view: "playground", corner: "compose" })} />
      </dl>
    </div>
  );
}

function Tour({ title, hint, to }: { title: Key; hint: Key; to?: string }) {
  return (
    <div>
      <dt>{to ? <a href={to}>{t(title)}</a> : t(title)}</dt>
      <dd>{t(hint)}</dd>
    </div>
  );
}
