/** Focus is never lost: when what had it goes away, the transcript or the page takes it. */
const MOST_FRAMES = 120
let byKey = false
addEventListener('keydown', () => (byKey = true), true)
addEventListener('pointerdown', () => (byKey = false), true)

export function keepFocus(frames = MOST_FRAMES): void {
  requestAnimationFrame(() => {
    const now = document.activeElement
    if ((now && now !== document.body) || document.querySelector('dialog[open]')) return
    const next = document.querySelector<HTMLElement>('.log') ?? document.querySelector<HTMLElement>('main')
    // A page that is loaded when it is first wanted comes a little later.
    if (!next) {
      if (frames > 0) keepFocus(frames - 1)
      return
    }
    if (!next.hasAttribute('tabindex')) next.tabIndex = -1
    if (!byKey) arrive(next)
    next.focus({ preventScroll: true })
  })
}

/** Nobody pressed a key yet: the focus is there, and shown when one is pressed. */
function arrive(node: HTMLElement): void {
  node.dataset['arrived'] = ''
  addEventListener('keydown', () => delete node.dataset['arrived'], { capture: true, once: true })
}
