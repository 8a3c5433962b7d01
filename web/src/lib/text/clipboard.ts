/** Copy text to the clipboard; a button, if given, shows a check mark for a moment. */
export async function copyText(text: string, button?: HTMLElement): Promise<void> {
  await write(text)
  if (!button) return
  const before = button.textContent
  button.textContent = '✓'
  setTimeout(() => (button.textContent = before), 1200)
}

/** The clipboard API exists only on https pages and on localhost; elsewhere use the old command. */
async function write(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const before = document.activeElement as HTMLElement | null
  const box = document.createElement('textarea')
  box.value = text
  box.className = 'visually-hidden'
  // Beside the focused element: while a dialog is open, nothing outside of it can be selected.
  const parent = before === document.body ? before : before?.parentElement
  ;(parent ?? document.body).append(box)
  box.select()
  document.execCommand('copy')
  box.remove()
  before?.focus({ preventScroll: true })
}
