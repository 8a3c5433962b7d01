import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { resolveLanguage, fill } from '../src/lib/i18n.svelte'

const SOURCE = join(import.meta.dirname, '..', 'src')
const read = (name: string) =>
  JSON.parse(readFileSync(join(SOURCE, 'locales', `${name}.json`), 'utf8')) as Record<string, string>
const english = read('en')
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
