/** Back, play, next: the controls of a step-through. */
import { useEffect } from "preact/hooks";
import { useSignal, type Signal } from "@preact/signals";
import { useKeys } from "../shell/keys.ts";
import { t } from "../text/index.ts";

const STEP_MS = 700;

export function Stepper({ step, total }: { step: Signal<number>; total: number }) {
  const isPlaying = useSignal(false);
  const to = (value: number) => (step.value = Math.max(0, Math.min(total, value)));
  useEffect(() => {
    if (!isPlaying.value) return;
    if (step.value >= total) {
      isPlaying.value = false;
      return;
    }
    const timer = setTimeout(() => to(step.value + 1), STEP_MS);
    return () => clearTimeout(timer);
  }, [isPlaying.value, step.value, total]);
  const play = () => {
    if (!isPlaying.value && step.value >= total) step.value = 0;
    isPlaying.value = !isPlaying.value;
  };
  useKeys((key) => {
    if (document.activeElement?.matches("button, a")) if (key === " " || key === "Enter") return false;
    if (key === "ArrowRight") to(step.value + 1);
    else if (key === "ArrowLeft") to(step.value - 1);
    else if (key === " ") play();
    else return false;
    return true;
  }, 3);
  return (
    <div class="step-controls" role="group">
      <button type="button" aria-label={t("merges.start")} disabled={step.value === 0} onClick={() => to(0)}>
        |←
      </button>
      <button type="button" disabled={step.value === 0} onClick={() => to(step.value - 1)}>
        ← {t("merges.previous")}
      </button>
      <button type="button" class="primary" aria-pressed={isPlaying.value} disabled={total === 0} onClick={play}>
        {isPlaying.value ? t("merges.pause") : t("merges.play")}
      </button>
      <button type="button" disabled={step.value >= total} onClick={() => to(step.value + 1)}>
        {t("merges.next")} →
      </button>
      <button type="button" aria-label={t("merges.finish")} disabled={step.value >= total} onClick={() => to(total)}>
        →|
      </button>
      <output aria-live="polite">{t("merges.step", { step: step.value, total })}</output>
    </div>
  );
}
