/** The messages of pages and dialogs that are loaded on demand; each of them imports this. */
import english from '../locales/pages/en.json'
import { addMessages } from './i18n.svelte'

void addMessages(english, {
  de: () => import('../locales/pages/de.json'),
  ru: () => import('../locales/pages/ru.json'),
  'zh-Hans': () => import('../locales/pages/zh-Hans.json'),
})
