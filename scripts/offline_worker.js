// The search of the site runs in a worker, which a page from a disk may not start: its script runs in a hidden frame
// instead. scripts/make_site.py puts this into the site.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<!doctype html>"
      this.ready = new Promise((done, failed) => {
        frame.onload = () => {
          const inside = frame.contentWindow
          inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = inside.document.createElement("script")
          script.onload = () => done(inside)
          script.onerror = () => failed(new Error(`${url} cannot be read`))
          script.src = new URL(url, location)
          inside.document.head.appendChild(script)
        }
      })
      document.body.appendChild(frame)
    }
    postMessage(data) {
      this.ready.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
