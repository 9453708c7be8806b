/** K/V bytes of each architecture, side by side, for a context length that one chooses. */
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import type { Kv, KvModel } from "../api/contract.ts";
import { useLoaded } from "../api/loaded.ts";
import { bytes, count } from "../logic/format.ts";
import { Shown } from "../parts/state.tsx";
import { locale, t } from "../text/index.ts";
import { served } from "../text/served.ts";

const LONGEST = 20; // 2^20 tokens

export function KvTable() {
  const tokens = useSignal(32_768);
  const asked = useSignal(32_768);
  useEffect(() => {
    const timer = setTimeout(() => (asked.value = tokens.value), 150);
    return () => clearTimeout(timer);
  }, [tokens.value]);
  const path = `kv?tokens=${asked.value}`;
  const kv = useLoaded<Kv>(path).value;
  const before = useSignal<Kv | null>(null);
  if (kv.is === "there") before.value = kv.value;
  const shown = kv.is === "loading" && before.value ? ({ is: "there", value: before.value } as const) : kv;
  return (
    <section class="kv" aria-labelledby="kv-title">
      <header class="title">
        <h2 id="kv-title">{t("kv.title")}</h2>
        <label>
          {t("kv.length")}
          <input
            type="number"
            min="1"
            max={2 ** LONGEST}
            step="1"
            value={tokens.value}
            onInput={(event) => (tokens.value = Math.max(1, Math.min(2 ** LONGEST, Math.round(Number(event.currentTarget.value)) || 1)))}
          />
          <input
            type="range"
            min="7"
            max={LONGEST}
            step="0.25"
            aria-label={t("kv.length")}
            value={Math.log2(tokens.value)}
            onInput={(event) => (tokens.value = Math.round(2 ** Number(event.currentTarget.value)))}
          />
        </label>
      </header>
      <Shown of={shown}>{(value) => <Models models={value.models} />}</Shown>
    </section>
  );
}

function Models({ models }: { models: KvModel[] }) {
  const language = locale.value;
  const most = Math.max(1, ...models.map((model) => model.total_bytes));
  return (
    <table class="figures-table" data-testid="kv-table">
      <thead>
        <tr>
          <th scope="col">{t("kv.model")}</th>
          <th scope="col">{t("kv.perToken")}</th>
          <th scope="col">{t("kv.fixed")}</th>
          <th scope="col">{t("kv.total")}</th>
          <th scope="col" class="wide">{t("kv.parts")}</th>
        </tr>
      </thead>
      <tbody>
        {models.map((model) => (
          <tr key={model.name} class={model.is_loaded ? "loaded" : ""}>
            <th scope="row">
              {model.name} <small>{model.architecture}</small>
              {model.is_loaded && <em> {t("kv.loaded")}</em>}
            </th>
            <td data-label={t("kv.perToken")} title={`${count(model.bytes_per_token, language)} B`}>
              {bytes(model.bytes_per_token, language)}
            </td>
            <td data-label={t("kv.fixed")}>{bytes(model.fixed_bytes, language)}</td>
            <td class="kv-total" data-label={t("kv.total")} title={`${count(model.total_bytes, language)} B`}>
              <i style={{ width: `${(model.total_bytes / most) * 100}%` }} aria-hidden="true" />
              <b>{bytes(model.total_bytes, language)}</b>
            </td>
            <td class="wide" data-label={t("kv.parts")}>
              <small>
                {model.parts.map((part) => `${part.name} ${part.bytes_per_token ? t("unit.perToken", { bytes: bytes(part.bytes_per_token, language) }) : t("context.fixed", { bytes: bytes(part.fixed_bytes, language) })}`).join(" · ")}
                {model.note && ` · ${served(model.note)}`}
              </small>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
