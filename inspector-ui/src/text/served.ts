/** Sentences that the server says in English (titles of reasoning controls, notes), and the same in Chinese. `{}`: what differs. */
import { language } from "./index.ts";

const CHINESE: Record<string, string> = {
  "the prompt opens <think>": "提示词打开 <think>",
  "the prompt closes </think>": "提示词关闭 </think>",
  "the prompt closes an empty <think></think>": "提示词写入空的 <think></think>",
  "the model opens <think> itself": "模型自己打开 <think>",
  "/nothink behind every user turn, and an empty <think></think>": "每个用户轮次后加 /nothink，并写入空的 <think></think>",
  "a sentence at the front asks for {} effort": "开头的一句话要求 {} 力度",
  "the effort stands as a number at the front ({})": "力度以数字写在开头（{}）",
  "“Reasoning: {}” in the system message": "系统消息中的 “Reasoning: {}”",
  "thinking is asked for": "要求思考",
  "thinking is closed, where the template can": "关闭思考（模板支持时）",
  "high effort, where the template has words for it": "高力度（模板有相应文字时）",
  "This template never shows the tools to the model.": "此模板从不向模型展示工具。",
  "as it runs here, {}": "按此处运行的方式，{}",
  "{} (served)": "{}（正在服务）",
};

const SENTENCES = Object.entries(CHINESE).map(([english, chinese]) => {
  const parts = english.split("{}").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return [new RegExp(`^${parts.join("(.+)")}$`), chinese] as const;
});

/** The sentence in the page's language; as it is, where it is not known here. */
export function served(text: string): string {
  if (language.value === "en") return text;
  for (const [pattern, chinese] of SENTENCES) {
    const found = pattern.exec(text);
    if (found) return chinese.replace("{}", () => found[1] ?? "");
  }
  return text;
}
