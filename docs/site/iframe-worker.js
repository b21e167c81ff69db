// Search runs in a Worker, and browsers start none for pages that were opened from a folder. There an iframe that nobody
// sees takes the Worker's place. The theme would fetch such a stand-in from a server (its search knows it by the name
// IFrameWorker); this one needs none.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      url = new URL(url, location.href).href;
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      // The worker's own words: what it posts arrives here, what it imports are further scripts.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      inside.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => this.load(new URL(each, url))), Promise.resolve());
      this.inside = inside;
      this.load(url).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }
    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = done;
        script.onerror = () => failed(new Error(`cannot load ${url}`));
        this.inside.document.body.appendChild(script);
      });
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inside.dispatchEvent(new MessageEvent("message", {data}));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
}
