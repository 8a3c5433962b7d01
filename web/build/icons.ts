/** Collects the icons in use into one file, so that they need one request. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Plugin } from 'vite'

// An empty icon that only takes up space.
const BLANK = '<symbol id="blank" viewBox="0 0 24 24"></symbol>'
const NAMES = [
  'archive',
  'arrow-down',
  'arrow-up',
  'ban',
  'bot',
  'braces',
  'chart-column',
  'check',
  'chevron-down',
  'chevron-left',
  'chevron-right',
  'circle-help',
  'clock',
  'copy',
  'download',
  'ellipsis',
  'brain',
  'eye',
  'file-pen',
  'file-text',
  'files',
  'image',
  'folder',
  'git-fork',
  'globe',
  'hash',
  'info',
  'link',
  'list',
  'mail',
  'menu',
  'message-circle',
  'message-square',
  'minimize-2',
  'package',
  'palette',
  'paperclip',
  'pencil',
  'phone',
  'pin',
  'plug',
  'plus',
  'quote',
  'radio',
  'rotate-ccw',
  'search',
  'send',
  'settings',
  'square',
  'tag',
  'terminal',
  'trash-2',
  'triangle-alert',
  'undo-2',
  'upload',
  'wrench',
  'x',
]

export function icons(): Plugin {
  return {
    name: 'sessionary-icons',
    configResolved(config) {
      const folder = join(config.root, 'src', 'generated')
      mkdirSync(folder, { recursive: true })
      writeFileSync(join(folder, 'icons.svg'), sprite())
    },
  }
}

function sprite(): string {
  const base = dirname(createRequire(import.meta.url).resolve('lucide-static/package.json'))
  const symbols = NAMES.map((name) => {
    const svg = readFileSync(join(base, 'icons', `${name}.svg`), 'utf8')
    const inner = /<svg[^>]*>([\s\S]*)<\/svg>/.exec(svg)?.[1]?.replace(/\s+/g, ' ').trim() ?? ''
    return `<symbol id="${name}" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">${inner}</symbol>`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg">${BLANK}${symbols.join('')}</svg>\n`
}
