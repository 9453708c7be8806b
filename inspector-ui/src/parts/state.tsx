/** What a view shows while its facts are not there, or when they will not come. */
import type { ComponentChildren } from "preact";
import { ApiFailure } from "../api/client.ts";
import type { Loaded } from "../api/loaded.ts";
import { t } from "../text/index.ts";

export function Shown<T>({ of, children, retry }: { of: Loaded<T>; children: (value: T) => ComponentChildren; retry?: () => void }) {
  if (of.is === "there") return <>{children(of.value)}</>;
  if (of.is === "loading") return <p class="waiting" role="status">{t("state.loading")}</p>;
  return <Problem error={of.error} retry={retry} />;
}

export function Problem({ error, retry }: { error: Error; retry?: () => void }) {
  const isNotReady = error instanceof ApiFailure && error.code === "not_ready";
  const isGone = error instanceof ApiFailure && error.code === "not_found";
  return (
    <div class="empty" role="alert">
      <p>{isNotReady ? t("state.modelLoading") : isGone ? t("request.gone") : t("state.failed", { reason: error.message })}</p>
      {retry && (
        <button type="button" onClick={retry}>
          {t("state.retry")}
        </button>
      )}
    </div>
  );
}
