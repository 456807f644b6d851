// Voice input by the browser's own recognition of speech, where it has one: what is said is added to the message's text.
import { byId, toast } from "./dom.js";

const recognition = () => window.SpeechRecognition ?? window.webkitSpeechRecognition;

const kProblems = {
  "not-allowed": "the browser does not allow the microphone for this page", "audio-capture": "no microphone was found",
  network: "the browser's recognition cannot be reached", "service-not-allowed": "the browser does not allow its recognition for this page",
};

export class Voice {
  #running = null;
  #write; // (text): makes it the message that is being written

  constructor(write) {
    this.#write = write;
    byId("speak").hidden = !recognition();
    byId("speak").addEventListener("click", () => (this.#running ? this.#running.stop() : this.#start()));
  }

  #start() {
    const Recognition = recognition();
    const running = new Recognition();
    this.#running = running;
    Object.assign(running, { lang: navigator.language, continuous: true, interimResults: true });
    const before = byId("prompt").value;
    running.onresult = ({ results }) => {
      const said = [...results].map(([best]) => best.transcript).join("").trim();
      this.#write([before.trimEnd(), said].filter(Boolean).join(" "));
    };
    running.onerror = ({ error }) => {
      if (error !== "no-speech" && error !== "aborted") toast(`Nothing can be heard: ${kProblems[error] ?? error}`);
    };
    running.onend = () => {
      this.#running = null;
      this.#draw();
    };
    running.start();
    this.#draw();
  }

  #draw() {
    byId("speak").setAttribute("aria-pressed", String(Boolean(this.#running)));
    byId("speak").textContent = this.#running ? "Listening…" : "Speak";
  }
}
