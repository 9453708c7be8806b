import { render } from "preact";
import { App } from "./shell/app.tsx";
import "./style/index.css";

render(<App />, document.getElementById("app")!);
