/**
 * Translations. English is part of the bundle; other languages are loaded when they are chosen. The messages of pages and
 * dialogs that are loaded on demand are apart, in `page-messages.ts`.
 */
import english from '../locales/en.json'
import type pages from '../locales/pages/en.json'
import { preferences } from './ui/preferences.svelte'

export type MessageKey = keyof typeof english | keyof typeof pages
type Messages = Partial<Record<MessageKey, string>>

export const LANGUAGES = { auto: 'System', en: 'English', de: 'Deutsch', ru: 'Русский', 'zh-Hans': '简体中文' } as const

export type Loaders = Record<string, () => Promise<{ default: Messages }>>
const LOADERS: Loaders = {
  de: () => import('../locales/de.json'),
  ru: () => import('../locales/ru.json'),
  'zh-Hans': () => import('../locales/zh-Hans.json'),
}
/** Every set of messages that was added, in English and with its translations. */
const sets: { english: Messages; loaders: Loaders }[] = [{ english, loaders: LOADERS }]
let messages = $state.raw<Messages>(english)
let current = $state('en')

export function language(): string {
  return current
}

export function resolveLanguage(preference: string, offered: readonly string[]): string {
  if (preference !== 'auto') return preference
  for (const each of offered) {
    if (each.toLowerCase().startsWith('zh')) return 'zh-Hans'
    const short = each.split('-')[0] ?? 'en'
    if (short === 'en' || short in LOADERS) return short
  }
  return 'en'
}

export async function loadLanguage(): Promise<void> {
  const name = resolveLanguage(preferences.language, navigator.languages)
  const known = Object.assign({}, ...sets.map((set) => set.english)) as Messages
  try {
    const translated = name in LOADERS ? await Promise.all(sets.map((set) => set.loaders[name]?.())) : []
    messages = Object.assign(known, ...translated.map((each) => each?.default)) as Messages
    current = name in LOADERS ? name : 'en'
  } catch {
    messages = known
    current = 'en'
  }
  document.documentElement.lang = current
}

/** Add messages, in the language of the page too. */
export async function addMessages(english: Messages, loaders: Loaders): Promise<void> {
  sets.push({ english, loaders })
  messages = { ...english, ...messages }
  const translated = await loaders[current]?.().catch(() => null)
  if (translated) messages = { ...messages, ...translated.default }
}

type Values = Record<string, string | number>

export function t(key: MessageKey, values: Values = {}): string {
  return fill(messages[key] ?? key, values)
}

/** A message that depends on a number: `key_one`, `key_few`, `key_many`, `key_other`. */
export function n(key: string, count: number, values: Values = {}): string {
  const form = new Intl.PluralRules(current).select(count)
  const found = messages[`${key}_${form}` as MessageKey] ?? messages[`${key}_other` as MessageKey] ?? key
  return fill(found, { n: count.toLocaleString(current), ...values })
}

export function fill(text: string, values: Values): string {
  return text.replace(/\{(\w+)\}/g, (placeholder, name: string) => String(values[name] ?? placeholder))
}
