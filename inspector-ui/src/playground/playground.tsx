/** The playground: what a conversation becomes, without running the model; and two step-throughs. */
import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Family } from "../api/contract.ts";
import { useLoaded } from "../api/loaded.ts";
import { Shown } from "../parts/state.tsx";
import { address, CORNERS, type Corner } from "../shell/route.ts";
import { t } from "../text/index.ts";
import { AttentionSteps } from "./attention-steps.tsx";
import { Compare } from "./compare.tsx";
import { Compose } from "./compose.tsx";
import { example } from "./draft.ts";
import { MergeSteps } from "./merge-steps.tsx";
import { draft } from "./playground-state.ts";

export function Playground({ corner }: { corner: Corner }) {
  const again = useSignal(0);
  const families = useLoaded<{ families: Family[] }>("families", again.value).value;
  const known = useComputed(() => draft.value !== null);
  useEffect(() => void (draft.value ??= example()), []);
  return (
    <section class="playground" aria-labelledby="playground-title">
      <header class="title">
        <h1 id="playground-title">{t("nav.playground")}</h1>
      </header>
      <nav class="tabs" aria-label={t("play.label")}>
        {CORNERS.map((name) => (
          <a key={name} href={address({ view: "playground", corner: name })} aria-current={name === corner ? "page" : undefined}>
            {t(`play.${name}`)}
          </a>
        ))}
      </nav>
      {corner === "attention" ? (
        <AttentionSteps />
      ) : (
        <Shown of={families} retry={() => void (again.value += 1)}>
          {({ families }) =>
            !known.value ? null : corner === "compose" ? <Compose families={families} /> : corner === "compare" ? <Compare families={families} /> : <MergeSteps families={families} />
          }
        </Shown>
      )}
    </section>
  );
}
