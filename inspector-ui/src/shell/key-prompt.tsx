/** Asks for the API key, where the server has keys. */
import { useSignal } from "@preact/signals";
import { enterKey, keyRefused } from "../api/client.ts";
import { t } from "../text/index.ts";

export function KeyPrompt() {
  const key = useSignal("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (key.value.trim()) enterKey(key.value.trim());
  };
  return (
    <form class="key-prompt" onSubmit={submit}>
      <h1>{t("key.title")}</h1>
      <p id="key-explain">{t("key.explain")}</p>
      <label>
        <span>{t("key.field")}</span>
        <input
          type="password"
          autocomplete="off"
          autofocus
          aria-describedby="key-explain"
          aria-invalid={keyRefused.value}
          value={key.value}
          onInput={(event) => (key.value = event.currentTarget.value)}
        />
      </label>
      {keyRefused.value && (
        <p class="problem" role="alert">
          {t("key.refused")}
        </p>
      )}
      <button type="submit" class="primary">
        {t("key.enter")}
      </button>
    </form>
  );
}
