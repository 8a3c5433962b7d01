/** Terminal text: keeps colours and removes all other control sequences. */
export interface AnsiSpan {
  text: string
  classes: string
}

// Escape sequences: CSI, OSC with its terminator, and two-character sequences.
// eslint-disable-next-line no-control-regex -- matching control characters is the purpose
const SEQUENCE = /\x1b\[([0-9;:]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]/g
// eslint-disable-next-line no-control-regex -- matching control characters is the purpose
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g

interface AnsiStyle {
  fg: string
  bold: boolean
  dim: boolean
  under: boolean
}

export function parseAnsi(text: string): AnsiSpan[] {
  const out: AnsiSpan[] = []
  const style: AnsiStyle = { fg: '', bold: false, dim: false, under: false }
  let from = 0
  for (const found of text.matchAll(SEQUENCE)) {
    appendSpan(out, text.slice(from, found.index), style)
    if (found[2] === 'm') applyCodes(style, found[1] ?? '')
    from = found.index + found[0].length
  }
  appendSpan(out, text.slice(from), style)
  return out
}

export function stripAnsi(text: string): string {
  return text.replace(SEQUENCE, '').replace(CONTROLS, '')
}

function appendSpan(out: AnsiSpan[], text: string, style: AnsiStyle): void {
  const shown = text
    .replace(/\r\n/g, '\n')
    .replace(/^.*\r(?!$)/gm, '')
    .replace(CONTROLS, '')
  if (!shown) return
  const classes = [style.fg, style.bold && 'ansi-bold', style.dim && 'ansi-dim', style.under && 'ansi-underline']
    .filter(Boolean)
    .join(' ')
  const last = out[out.length - 1]
  if (last && last.classes === classes) last.text += shown
  else out.push({ text: shown, classes })
}

function applyCodes(style: AnsiStyle, codes: string): void {
  const numbers = codes.split(/[;:]/).map(Number)
  for (let index = 0; index < numbers.length; index++) {
    const code = numbers[index] ?? 0
    if (code === 0) Object.assign(style, { fg: '', bold: false, dim: false, under: false })
    else if (code === 1) style.bold = true
    else if (code === 2) style.dim = true
    else if (code === 4) style.under = true
    else if (code === 22) style.bold = style.dim = false
    else if (code === 24) style.under = false
    else if (code >= 30 && code <= 37) style.fg = `ansi-${code - 30}`
    else if (code >= 90 && code <= 97) style.fg = `ansi-${code - 90}`
    else if (code === 39) style.fg = ''
    else if (code === 38 || code === 48) {
      // 256 colours and true colours have arguments; one of the eight basic colours is enough.
      if (numbers[index + 1] === 5) {
        if (code === 38) style.fg = `ansi-${(numbers[index + 2] ?? 7) % 8}`
        index += 2
      } else index += 4
    }
  }
}
