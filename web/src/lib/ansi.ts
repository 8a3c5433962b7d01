/** Terminal text: colours kept, everything else that a terminal could be told is left out. */
export interface Piece {
  text: string
  classes: string
}

// Escape sequences: CSI, OSC (with its end), and two-character ones.
// eslint-disable-next-line no-control-regex -- control characters are what is looked for
const SEQUENCE = /\x1b\[([0-9;:]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]/g
// eslint-disable-next-line no-control-regex -- control characters are what is looked for
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g

interface Look {
  fg: string
  bold: boolean
  dim: boolean
  under: boolean
}

export function pieces(text: string): Piece[] {
  const out: Piece[] = []
  const look: Look = { fg: '', bold: false, dim: false, under: false }
  let from = 0
  for (const found of text.matchAll(SEQUENCE)) {
    push(out, text.slice(from, found.index), look)
    if (found[2] === 'm') change(look, found[1] ?? '')
    from = found.index + found[0].length
  }
  push(out, text.slice(from), look)
  return out
}

export function plain(text: string): string {
  return text.replace(SEQUENCE, '').replace(CONTROLS, '')
}

function push(out: Piece[], text: string, look: Look): void {
  const shown = text
    .replace(/\r\n/g, '\n')
    .replace(/^.*\r(?!$)/gm, '')
    .replace(CONTROLS, '')
  if (!shown) return
  const classes = [look.fg, look.bold && 'a-bold', look.dim && 'a-dim', look.under && 'a-under']
    .filter(Boolean)
    .join(' ')
  const last = out[out.length - 1]
  if (last && last.classes === classes) last.text += shown
  else out.push({ text: shown, classes })
}

function change(look: Look, codes: string): void {
  const numbers = codes.split(/[;:]/).map(Number)
  for (let place = 0; place < numbers.length; place++) {
    const code = numbers[place] ?? 0
    if (code === 0) Object.assign(look, { fg: '', bold: false, dim: false, under: false })
    else if (code === 1) look.bold = true
    else if (code === 2) look.dim = true
    else if (code === 4) look.under = true
    else if (code === 22) look.bold = look.dim = false
    else if (code === 24) look.under = false
    else if (code >= 30 && code <= 37) look.fg = `a-${code - 30}`
    else if (code >= 90 && code <= 97) look.fg = `a-${code - 90}`
    else if (code === 39) look.fg = ''
    else if (code === 38 || code === 48) {
      // 256 colours and true colours have arguments of their own; the nearest of eight is enough.
      if (numbers[place + 1] === 5) {
        if (code === 38) look.fg = `a-${(numbers[place + 2] ?? 7) % 8}`
        place += 2
      } else place += 4
    }
  }
}
