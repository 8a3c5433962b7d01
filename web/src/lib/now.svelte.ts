/** The time that pages show: it goes on while nothing else happens, so that «2 m» does not stand for hours. */
const STEP_MS = 30_000

class Now {
  at = $state(Date.now())

  constructor() {
    const look = () => (this.at = Date.now())
    setInterval(look, STEP_MS)
    // A page in the background is woken late.
    document.addEventListener('visibilitychange', look)
  }
}

export const now = new Now()
