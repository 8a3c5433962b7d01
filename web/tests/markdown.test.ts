import { expect, test } from 'vitest'
import { blocks, sanitize, renderBlock } from '../src/lib/text/markdown'

const HOSTILE = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '[click](javascript:alert(1))',
  '[click](JaVaScRiPt&#58;alert(1))',
  '![pixel](https://tracker.example/p.gif)',
  '<svg onload=alert(1)><use href="data:image/svg+xml,x"/></svg>',
  '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
  '<a href="vbscript:x" style="position:fixed">x</a>',
  '<style>@import url(https://tracker.example)</style>',
  '<form action="https://tracker.example"><input name=a></form>',
  '[x](data:text/html,<script>alert(1)</script>)',
  '<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>',
  '```html\n<img src=x onerror=alert(1)>\n```',
  '| a |\n|---|\n| <img src=x> |',
  '<b onmouseover=alert(1) id=app class="top">bold</b>',
]

function html(text: string): HTMLElement {
  const box = document.createElement('div')
  for (const block of blocks(text)) box.append(renderBlock(block))
  return box
}

test.each(HOSTILE)('%s becomes harmless', (text) => {
  const box = html(text)

  expect(
    box.querySelector('script, img, svg, iframe, style, form, input, object, embed, link, meta, math, video, audio'),
  ).toBeNull()
  for (const node of box.querySelectorAll('*')) {
    for (const { name, value } of node.attributes) {
      expect(name).not.toMatch(/^on|^style$|^id$|^src/)
      if (name === 'href') expect(value).toMatch(/^(?:https?:|mailto:)/)
    }
  }
})

test('raw HTML is shown as the text that it is', () => {
  expect(html('a <b>bold</b> word').textContent).toContain('<b>bold</b>')
})

test('links open elsewhere and tell nobody where they were', () => {
  const link = html('[x](https://example.org/a)').querySelector('a')

  expect(link?.target).toBe('_blank')
  expect(link?.rel).toContain('noopener')
})

test('a text comes in blocks, so that a stream repaints only its last', () => {
  expect(blocks('# a\n\ntext\n\n```\ncode\n\nmore\n```').map((block) => block.type)).toEqual([
    'heading',
    'paragraph',
    'code',
  ])
})

test('a numbered list begins with its own number', () => {
  expect(html('2. two\n3. three').querySelector('ol')?.getAttribute('start')).toBe('2')
})

test('columns keep their alignment', () => {
  const cells = html('| a | b | c |\n|:--|:-:|--:|\n| 1 | 2 | 3 |').querySelectorAll('td')

  expect([...cells].map((cell) => cell.getAttribute('align'))).toEqual(['left', 'center', 'right'])
})

test.each([
  '<ol start="2x">',
  '<ol start="javascript:1">',
  '<ol start="-1e9">',
  '<p start="3">',
  '<p align="center">',
  '<td align="justify">',
  '<p dir="up">',
])('%s loses the attribute that has no place or no form there', (opening) => {
  const made = document.createElement('div')
  made.append(sanitize(/td/.test(opening) ? `<table><tr>${opening}x</td></tr></table>` : `${opening}x`))

  expect(made.innerHTML).not.toMatch(/ (?:start|align|dir)=/)
})

test('a direction that HTML of another library has stays', () => {
  const made = document.createElement('div')
  made.append(sanitize('<p dir="rtl">x</p>'))

  expect(made.innerHTML).toBe('<p dir="rtl">x</p>')
})
