/** Announces text to screen readers, politely. */
class Announcer {
  text = $state('')

  announce(text: string): void {
    this.text = ''
    setTimeout(() => (this.text = text), 30)
  }
}

export const announcer = new Announcer()
