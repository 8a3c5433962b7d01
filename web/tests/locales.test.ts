import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { resolveLanguage, fill } from '../src/lib/i18n.svelte'

const SOURCE = join(import.meta.dirname, '..', 'src')
const readFile = (name: string) =>
  JSON.parse(readFileSync(join(SOURCE, 'locales', `${name}.json`), 'utf8')) as Record<string, string>
/** The messages of a language: those of the first load, and those of pages that are loaded on demand. */
const read = (name: string) => ({ ...readFile(name), ...readFile(`pages/${name}`) })
const english = read('en')
const PAGE_MESSAGES = join(SOURCE, 'lib', 'page-messages.ts')

/** A module, and every module that it imports when it is loaded. */
function loadedWith(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found
  found.add(file)
  const text = readFileSync(file, 'utf8')
  for (const [, name] of text.matchAll(/^\s*(?:import|\}) (?:[^'\n]*?from )?'(\.[^']+)'/gm)) {
    const path = join(dirname(file), name ?? '')
    const at = ['', '.ts', '.svelte.ts']
      .map((end) => path + end)
      .find((each) => existsSync(each) && statSync(each).isFile())
    if (at && /\.(?:ts|svelte)$/.test(at)) loadedWith(at, found)
  }
  return found
}

/** The messages that modules ask for by name. */
function askedFor(files: Iterable<string>): string[] {
  const text = [...files].map((file) => readFileSync(file, 'utf8')).join('\n')
  const names = [...text.matchAll(/'([a-z]\w*\.\w+(?:\.\w+)?)'/gi)].map((found) => found[1] ?? '')
  return names.flatMap((name) => [name, `${name}_other`]).filter((name) => name in english)
}
const base = (key: string) => key.replace(/_(?:zero|one|two|few|many|other)$/, '')
const places = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((found) => found[1]).sort()

test('every word that is asked for is there', () => {
  const sources = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((name) =>
    /\.(?:ts|svelte)$/.test(name),
  )
  const text = sources.map((name) => readFileSync(join(SOURCE, name), 'utf8')).join('\n')
  const asked = [...text.matchAll(/\bt\(\s*'([\w.]+)'/g)].map((found) => found[1] ?? '')
  const counted = [...text.matchAll(/\bn\(\s*'([\w.]+)'/g)].map((found) => `${found[1]}_other`)

  expect([...asked, ...counted].filter((key) => !(key in english))).toEqual([])
})

test('what is loaded first has its words with it', () => {
  const first = loadedWith(join(SOURCE, 'main.ts'))

  expect(first.has(PAGE_MESSAGES)).toBe(false)
  expect(askedFor(first).filter((key) => !(key in readFile('en')))).toEqual([])
})

test('what is loaded on demand has its words with it', () => {
  const first = loadedWith(join(SOURCE, 'main.ts'))
  const entries = [...first].flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/import\('(\.[^']+\.svelte)'\)/g)].map(([, name]) =>
      join(dirname(file), name ?? ''),
    ),
  )

  expect(entries.length).toBeGreaterThan(8)
  for (const entry of entries) {
    const files = loadedWith(entry)
    const needsPages = askedFor(files).some((key) => !(key in readFile('en')))
    expect(!needsPages || files.has(PAGE_MESSAGES), entry).toBe(true)
  }
})

test('no word is in both sets', () => {
  const pages = readFile('pages/en')

  expect(Object.keys(readFile('en')).filter((key) => key in pages)).toEqual([])
})

test.each(['de', 'ru', 'zh-Hans'])('%s has no words of its own, and the same places to fill', (name) => {
  const known = new Set(Object.keys(english).map(base))
  for (const [key, text] of Object.entries(read(name))) {
    expect(known, key).toContain(base(key))
    const original = english[key] ?? english[`${base(key)}_other`] ?? english[base(key)] ?? ''
    expect(
      places(text).filter((place) => !places(original).includes(place)),
      key,
    ).toEqual([])
  }
})

test.each(['de', 'ru', 'zh-Hans'])('%s has every word, in every form that its numbers need', (name) => {
  const own = read(name)
  const forms = new Intl.PluralRules(name).resolvedOptions().pluralCategories
  const wanted = Object.keys(english).flatMap((key) =>
    base(key) === key ? [key] : forms.map((form) => `${base(key)}_${form}`),
  )

  expect([...new Set(wanted)].filter((key) => !own[key])).toEqual([])
})

test('the browser chooses the language, unless a person did', () => {
  expect(resolveLanguage('auto', ['de-AT', 'en'])).toBe('de')
  expect(resolveLanguage('auto', ['zh-TW'])).toBe('zh-Hans')
  expect(resolveLanguage('auto', ['fr', 'en'])).toBe('en')
  expect(resolveLanguage('ru', ['en'])).toBe('ru')
})

test('a place without a value stays visible', () => {
  expect(fill('{a} of {b}', { a: 1 })).toBe('1 of {b}')
})
