/** The frame of the page: brand, views, what is connected, language and colours. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { forgetKey, needsKey, storedKey } from "../api/client.ts";
import { about, connection, follow } from "../api/live.ts";
import { CacheView } from "../cache/cache-view.tsx";
import { Playground } from "../playground/playground.tsx";
import { RequestView } from "../requests/request-view.tsx";
import { RequestsView } from "../requests/requests-view.tsx";
import { language, locale, nextLanguage, t, type Key } from "../text/index.ts";
import { Help, isHelpOpen } from "./help.tsx";
import { useKeys } from "./keys.ts";
import { KeyPrompt } from "./key-prompt.tsx";
import { address, go, route, type Route } from "./route.ts";
import { nextTheme, theme } from "./theme.ts";

const VIEWS: [key: string, text: Key, to: Route][] = [
  ["r", "nav.requests", { view: "requests" }],
  ["c", "nav.cache", { view: "cache" }],
  ["p", "nav.playground", { view: "playground", corner: "compose" }],
];
/** How long a `g` waits for the letter behind it. */
const SECOND_KEY_MS = 1200;

export function App() {
  useLayoutEffect(follow, []);
  const wentAt = useRef(-SECOND_KEY_MS);
  useKeys((key, event) => {
    const isSecond = event.timeStamp - wentAt.current < SECOND_KEY_MS;
    wentAt.current = -SECOND_KEY_MS;
    const view = isSecond && VIEWS.find(([letter]) => letter === key);
    if (view) go(view[2]);
    return Boolean(view);
  }, 9);
  useKeys((key, event) => {
    if (key === "g") wentAt.current = event.timeStamp;
    else if (key === "t") nextTheme();
    else if (key === "l") nextLanguage();
    else if (key === "?") isHelpOpen.value = !isHelpOpen.value;
    else return false;
    return true;
  }, 0);
  useEffect(() => {
    document.title = `${t("app.title")} · ${about.value?.model ?? "zllm_ref"}`;
  }, [about.value, locale.value]);
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>
        {t("app.skip")}
      </a>
      <header class="top">
        <strong class="brand">
          <b aria-hidden="true" />
          zllm_ref <span>{t("app.title")}</span>
        </strong>
        <nav aria-label={t("nav.label")}>
          {VIEWS.map(([, text, to]) => (
            <a key={text} href={address(to)} aria-current={isUnder(route.value, to) ? "page" : undefined}>
              {t(text)}
            </a>
          ))}
        </nav>
        <Connection />
        <div class="switches">
          {storedKey() !== null && !needsKey.value && (
            <button type="button" onClick={forgetKey}>
              {t("key.forget")}
            </button>
          )}
          <button type="button" onClick={nextLanguage} aria-label={`${t("language.label")}: ${language.value === "en" ? "English" : "中文"}`}>
            {language.value === "en" ? "中文" : "English"}
          </button>
          <button type="button" onClick={nextTheme} aria-label={`${t("theme.label")}: ${t(`theme.${theme.value}`)}`}>
            <span aria-hidden="true">{{ auto: "◐", light: "○", dark: "●" }[theme.value]}</span> {t(`theme.${theme.value}`)}
          </button>
          <button type="button" onClick={() => (isHelpOpen.value = true)} aria-label={t("help.open")}>
            ?
          </button>
        </div>
      </header>
      <main id="content" tabIndex={-1} data-view={address(route.value)}>
        {needsKey.value ? <KeyPrompt /> : <View />}
      </main>
      <Help />
    </>
  );
}

function View() {
  const shown = route.value;
  switch (shown.view) {
    case "requests":
      return <RequestsView />;
    case "request":
      return <RequestView key={shown.id} id={shown.id} tab={shown.tab} />;
    case "cache":
      return <CacheView />;
    case "playground":
      return <Playground corner={shown.corner} />;
  }
}

function Connection() {
  const state = connection.value;
  const isLost = typeof state === "object";
  const name = isLost ? "lost" : state;
  return (
    <p class={`connection ${name}`} role="status">
      <i aria-hidden="true" />
      {about.value?.model && <b>{about.value.model}</b>}
      {isLost ? t("connection.lost", { reason: state.lost }) : t(`connection.${state}`)}
    </p>
  );
}

function isUnder(shown: Route, to: Route): boolean {
  return shown.view === to.view || (shown.view === "request" && to.view === "requests");
}

/** The address after `#` is the view's: the link moves the focus by hand. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("content")!.focus();
}
