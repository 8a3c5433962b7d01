import './app.css'
import { mount } from 'svelte'
import App from './App.svelte'
import { loadLanguage } from './lib/i18n.svelte'
import { sessionList } from './lib/sessions/session-list.svelte'
import { live } from './lib/live/live.svelte'
import { projects } from './lib/sessions/projects.svelte'
import { waiting } from './lib/questions/waiting.svelte'
import { router, sessionPath } from './lib/ui/router.svelte'

const target = document.getElementById('app')
if (!target) throw new Error('The page has no #app element.')
// Only the visual viewport knows how much room an on-screen keyboard leaves.
visualViewport?.addEventListener('resize', () =>
  document.documentElement.style.setProperty('--height', `${visualViewport?.height ?? innerHeight}px`),
)
router.start()
live.start()
waiting.start((id) => router.go(sessionPath(id)))
sessionList.start()
projects.start()
void loadLanguage().then(() => mount(App, { target }))

// Not in development, where every file changes.
if (import.meta.env.PROD && 'serviceWorker' in navigator) {
  addEventListener('load', () =>
    setTimeout(() => void navigator.serviceWorker.register('/sw.js').catch(() => undefined), 2000),
  )
}
