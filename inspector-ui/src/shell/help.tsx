/** The list of shortcuts. */
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { t, type Key } from "../text/index.ts";

export const isHelpOpen = signal(false);

const SHORTCUTS: [keys: string[], text: Key][] = [
  [["g r", "g c", "g p"], "help.go"],
  [["j", "k"], "help.move"],
  [["Enter"], "help.enter"],
  [["w", "p", "d"], "help.tab"],
  [["1", "2", "3", "4", "5"], "help.panel"],
  [["m"], "help.maximise"],
  [["←", "→"], "help.token"],
  [["Enter"], "help.pin"],
  [["f"], "help.follow"],
  [["Esc"], "help.escape"],
  [["Space"], "help.play"],
  [["t"], "help.theme"],
  [["l"], "help.language"],
  [["?"], "help.help"],
];

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (isHelpOpen.value) dialog.current!.showModal();
    else dialog.current!.close();
  }, [isHelpOpen.value]);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={() => (isHelpOpen.value = false)}>
      <header>
        <h2 id="help-title">{t("help.title")}</h2>
        <button type="button" onClick={() => (isHelpOpen.value = false)}>
          {t("help.close")}
        </button>
      </header>
      <dl>
        {SHORTCUTS.map(([keys, text]) => (
          <div key={text}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{t(text)}</dd>
          </div>
        ))}
      </dl>
    </dialog>
  );
}
