/** What broke the prefix: what the prompt is made of, what each part costs, and where an earlier state parts from it, and why. */
import { useSignal } from "@preact/signals";
import type { CompositionItem, Detail, Nearest, Prefix } from "../api/contract.ts";
import { useLoaded } from "../api/loaded.ts";
import { summaries } from "../api/live.ts";
import { visible } from "../logic/columns.ts";
import { difference } from "../logic/diff.ts";
import { count, milliseconds, money, share } from "../logic/format.ts";
import { Shown } from "../parts/state.tsx";
import { address } from "../shell/route.ts";
import { CauseDetail, isCalm } from "./cause.tsx";
import { locale, named, t } from "../text/index.ts";

export function PrefixTab({ detail }: { detail: Detail }) {
  const prices = useSignal<{ input: string; cached: string } | null>(null);
  const query = prices.value ? `?price_input=${Number(prices.value.input) || 0}&price_cached=${Number(prices.value.cached) || 0}` : "";
  const { id, state } = detail.summary;
  const found = useLoaded<Prefix>(detail.panels.prefix ? `requests/${id}/prefix${query}` : null, state).value;
  if (!detail.panels.prefix) return <p class="empty">{t("panel.empty")}</p>;
  return (
    <Shown of={found}>
      {(prefix) => (
        <div class="prefix">
          <CauseBox prefix={prefix} />
          <Composition prefix={prefix} onPrices={(input, cached) => (prices.value = { input, cached })} />
          <Fork nearest={prefix.nearest} id={id} />
        </div>
      )}
    </Shown>
  );
}

function CauseBox({ prefix: { cause } }: { prefix: Prefix }) {
  if (!cause) {
    return (
      <section class="cause calm" aria-label={t("prefix.cause")}>
        <h2>✓ {t("prefix.whole")}</h2>
      </section>
    );
  }
  return (
    <section class={`cause ${isCalm(cause.name) ? "calm" : ""}`} aria-label={t("prefix.cause")} data-cause={cause.name}>
      <p class="over">{t("prefix.cause")}</p>
      <h2>{named("cause.", cause.name)}</h2>
      <CauseDetail cause={cause} />
      {cause.lost_tokens > 0 && <p>{t("prefix.lost", { count: count(cause.lost_tokens, locale.value) })}</p>}
    </section>
  );
}

function Composition({ prefix, onPrices }: { prefix: Prefix; onPrices: (input: string, cached: string) => void }) {
  const language = locale.value;
  const { composition, total, prices } = prefix;
  const cost = (value: number) => money(value, prices.currency, language);
  const shown = composition.filter(({ tokens }) => tokens > 0);
  const row = (item: Omit<CompositionItem, "kind">, name: preact.ComponentChildren) => (
    <>
      <th scope="row">{name}</th>
      <td data-label={t("prefix.tokens")}>{count(item.tokens, language)}</td>
      <td data-label={t("prefix.share")}>{share(item.share, language)}</td>
      <td data-label={t("prefix.cachedTokens")}>{count(item.cached_tokens, language)}</td>
      <td data-label={t("prefix.cost")}>
        <b>{cost(item.cost)}</b>
      </td>
      <td data-label={t("prefix.costCached")}>{cost(item.cost_cached)}</td>
      <td data-label={t("prefix.costUncached")}>{cost(item.cost_uncached)}</td>
      <td data-label={t("prefix.time")}>{milliseconds(item.ms_uncached, language)}</td>
    </>
  );
  return (
    <section class="composition" aria-labelledby="composition-title">
      <header class="title">
        <h2 id="composition-title">{t("prefix.made")}</h2>
        <label>
          {t("prefix.priceInput")}
          <input type="number" min="0" step="any" value={prices.input} onChange={(event) => onPrices(event.currentTarget.value, String(prices.cached))} />
        </label>
        <label>
          {t("prefix.priceCached")}
          <input type="number" min="0" step="any" value={prices.cached} onChange={(event) => onPrices(String(prices.input), event.currentTarget.value)} />
        </label>
      </header>
      <div class="composition-bar" role="img" aria-label={shown.map((item) => `${named("prefix.", item.kind)} ${share(item.share, language)}`).join(", ")}>
        {shown.map((item) => (
          <div key={item.kind} class={`part-${item.kind}`} style={{ flexGrow: item.tokens }} title={`${named("prefix.", item.kind)}: ${count(item.tokens, language)}`}>
            <span>{named("prefix.", item.kind)}</span>
            <i style={{ width: `${(item.cached_tokens / item.tokens) * 100}%` }} />
          </div>
        ))}
      </div>
      <table class="figures-table" data-testid="composition">
        <thead>
          <tr>
            <th scope="col">{t("prefix.part")}</th>
            <th scope="col">{t("prefix.tokens")}</th>
            <th scope="col">{t("prefix.share")}</th>
            <th scope="col">{t("prefix.cachedTokens")}</th>
            <th scope="col">{t("prefix.cost")}</th>
            <th scope="col">{t("prefix.costCached")}</th>
            <th scope="col">{t("prefix.costUncached")}</th>
            <th scope="col">{t("prefix.time")}</th>
          </tr>
        </thead>
        <tbody>
          {composition.map((item) => (
            <tr key={item.kind} class={item.tokens ? "" : "nothing"}>
              {row(
                item,
                <>
                  <i class={`swatch part-${item.kind}`} aria-hidden="true" />
                  {named("prefix.", item.kind)}
                </>,
              )}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>{row(total, t("prefix.total"))}</tr>
        </tfoot>
      </table>
    </section>
  );
}

function Fork({ nearest, id }: { nearest: Nearest | null; id: string }) {
  const language = locale.value;
  if (!nearest) {
    return (
      <section class="fork" aria-labelledby="fork-title">
        <h2 id="fork-title">{t("prefix.nearest")}</h2>
        <p class="empty">{t("prefix.noNearest")}</p>
      </section>
    );
  }
  const earlier = summaries.value.find((summary) => summary.id === nearest.request);
  const { start, one, other, end } = difference(nearest.earlier, nearest.now);
  const numberOf = (value: number) => count(value, language);
  return (
    <section class="fork" aria-labelledby="fork-title" data-testid="fork">
      <header class="title">
        <h2 id="fork-title">{t("prefix.nearest")}</h2>
        <p>
          {nearest.request && nearest.request !== id ? (
            <a href={address({ view: "request", id: nearest.request, tab: "panels" })}>{t("prefix.ofRequest", { number: earlier?.number ?? nearest.request.slice(0, 8) })}</a>
          ) : (
            t("prefix.ofState")
          )}
          {": "}
          {t("prefix.nearestIs", { shared: numberOf(nearest.fork), length: numberOf(nearest.length) })}
          {nearest.namespace_differs && ` ${t("prefix.namespace")}`}
        </p>
      </header>
      <h3>{t("prefix.fork", { token: numberOf(nearest.fork) })}</h3>
      <figure>
        <figcaption>{t("prefix.before")}</figcaption>
        <pre class="mono before">{nearest.before}</pre>
      </figure>
      <div class="sides">
        <Side title={t("prefix.earlier")} className="earlier" parts={[start, one, end]} />
        <Side title={t("prefix.now")} className="now" parts={[start, other, end]} />
      </div>
    </section>
  );
}

function Side({ title, className, parts: [start, middle, end] }: { title: string; className: string; parts: [string, string, string] }) {
  const isEmpty = !start && !middle && !end;
  return (
    <figure class={className}>
      <figcaption>{title}</figcaption>
      <pre class="mono">
        {isEmpty ? (
          <em class="note">{t("prefix.ends")}</em>
        ) : (
          <>
            {start}
            <mark>{middle ? visible(middle).replace(/↵/g, "↵\n") : ""}</mark>
            {end}
          </>
        )}
      </pre>
    </figure>
  );
}
