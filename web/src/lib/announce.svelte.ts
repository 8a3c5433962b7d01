/** One polite voice for screen readers. */
class Voice {
  text = $state('')

  say(text: string): void {
    this.text = ''
    setTimeout(() => (this.text = text), 30)
  }
}

export const voice = new Voice()
