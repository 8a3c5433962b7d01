/** The current time for ages on the page; advances while nothing else happens. */
const STEP_MS = 30_000

class Clock {
  now = $state(Date.now())

  constructor() {
    const update = () => (this.now = Date.now())
    setInterval(update, STEP_MS)
    // Timers of background tabs run late.
    document.addEventListener('visibilitychange', update)
  }
}

export const clock = new Clock()
