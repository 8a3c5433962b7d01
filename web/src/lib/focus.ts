/** Focus is never lost: when what had it goes away, the transcript or the page takes it. */
export function keepFocus(): void {
  requestAnimationFrame(() => {
    const now = document.activeElement
    if ((now && now !== document.body) || document.querySelector('dialog[open]')) return
    const next = document.querySelector<HTMLElement>('.log') ?? document.querySelector<HTMLElement>('main')
    if (!next) return
    if (!next.hasAttribute('tabindex')) next.tabIndex = -1
    next.focus({ preventScroll: true })
  })
}
