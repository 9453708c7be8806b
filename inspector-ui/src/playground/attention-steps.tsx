/** Causal attention with and without a KV cache: what each step computes anew. Arithmetic alone, no model. */
import { useSignal } from "@preact/signals";
import { attentionStep, cellsUpTo, rowsUpTo } from "../logic/attention.ts";
import { count } from "../logic/format.ts";
import { locale, t } from "../text/index.ts";
import { Stepper } from "./stepper.tsx";

const MOST = 12;

export function AttentionSteps() {
  const prompt = useSignal(5);
  const generated = useSignal(6);
  const step = useSignal(0);
  const at = Math.min(step.value, generated.value);
  const language = locale.value;
  const amount = (label: string, value: typeof prompt, least: number) => (
    <label>
      {label}
      <input
        type="number"
        min={least}
        max={MOST}
        value={value.value}
        onInput={(event) => (value.value = Math.max(least, Math.min(MOST, Math.round(Number(event.currentTarget.value)) || least)))}
      />
    </label>
  );
  return (
    <div class="attention">
      <p class="note">{t("attention.hint")}</p>
      <div class="controls">
        {amount(t("attention.prompt"), prompt, 1)}
        {amount(t("attention.generate"), generated, 1)}
      </div>
      <Stepper step={step} total={generated.value} />
      <div class="sides">
        <Triangle prompt={prompt.value} generated={generated.value} step={at} hasCache={false} />
        <Triangle prompt={prompt.value} generated={generated.value} step={at} hasCache />
      </div>
      <Scale />
      <table class="figures-table" data-testid="attention-table">
        <caption>{t("attention.table")}</caption>
        <thead>
          <tr>
            <th scope="col" />
            {Array.from({ length: generated.value + 1 }, (_, index) => (
              <th key={index} scope="col" class={index === at ? "current" : ""}>
                {index}
              </th>
            ))}
            <th scope="col">Σ</th>
          </tr>
        </thead>
        <tbody>
          {[false, true].map((hasCache) => (
            <tr key={String(hasCache)}>
              <th scope="row">{t(hasCache ? "attention.with" : "attention.without")}</th>
              {Array.from({ length: generated.value + 1 }, (_, index) => (
                <td key={index} class={index === at ? "current" : index > at ? "later" : ""}>
                  {count(attentionStep(prompt.value, index, hasCache).cells, language)}
                </td>
              ))}
              <td>
                <b>{count(cellsUpTo(prompt.value, generated.value, hasCache), language)}</b>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Triangle({ prompt, generated, step, hasCache }: { prompt: number; generated: number; step: number; hasCache: boolean }) {
  const language = locale.value;
  const size = prompt + generated;
  const now = attentionStep(prompt, step, hasCache);
  const before = step === 0 ? 0 : prompt + step - 1;
  const kindOf = (row: number, column: number): string => {
    if (row >= now.length || column > row) return "none";
    if (row < now.rows[0]) return "kept";
    return row < before ? "again" : "now";
  };
  const cells = [];
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) cells.push(<i key={`${row} ${column}`} class={`cell ${kindOf(row, column)}`} />);
  }
  const title = t(hasCache ? "attention.with" : "attention.without");
  const figures = [
    [t("attention.rows"), now.rows[1] - now.rows[0], rowsUpTo(prompt, step, hasCache)],
    [t("attention.cells"), now.cells, cellsUpTo(prompt, step, hasCache)],
  ] as const;
  return (
    <figure class="triangle" data-testid={hasCache ? "with-cache" : "without-cache"} data-cells={now.cells}>
      <figcaption>{title}</figcaption>
      <div class="cells" role="img" aria-label={`${title}: ${figures.map(([name, value]) => `${name} ${value}`).join(", ")}`} style={{ gridTemplateColumns: `repeat(${size}, 1fr)` }}>
        {cells}
      </div>
      <ul class="legend">
        <li>
          <i class="swatch cell now" aria-hidden="true" />
          {t("attention.now")}
        </li>
        <li>
          <i class={`swatch cell ${hasCache ? "kept" : "again"}`} aria-hidden="true" />
          {t(hasCache ? "attention.kept" : "attention.again")}
        </li>
      </ul>
      <dl class="figures">
        {figures.map(([name, value, sum]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              {count(value, language)}{" "}
              <small>
                {t("attention.sum")} {count(sum, language)}
              </small>
            </dd>
          </div>
        ))}
      </dl>
    </figure>
  );
}

/** The same for a context as agents have it. */
function Scale() {
  const language = locale.value;
  const number = (value: number) => count(value, language);
  return (
    <ul class="scale">
      {[1000, 10_000, 100_000].map((length) => (
        <li key={length}>
          {t("attention.atScale", { count: number(length) })} <b>{t("attention.with")}</b> {t("attention.cellsWith", { count: number(length + 1) })}; <b>{t("attention.without")}</b>{" "}
          {t("attention.cellsWithout", { count: number(((length + 1) * (length + 2)) / 2), rows: number(length + 1) })}
        </li>
      ))}
    </ul>
  );
}
