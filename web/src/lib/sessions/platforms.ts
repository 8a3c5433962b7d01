const ICONS: Record<string, string> = {
  telegram: 'send',
  slack: 'hash',
  discord: 'message-circle',
  whatsapp: 'phone',
  signal: 'phone',
  sms: 'phone',
  terminal: 'terminal',
  cli: 'terminal',
  web: 'globe',
  api: 'plug',
  email: 'mail',
  matrix: 'braces',
  'claude-code': 'bot',
  claude_code: 'bot',
  hermes: 'bot',
  schedule: 'clock',
  cron: 'clock',
}

export function platformIcon(platform: string, kind = 'chat'): string {
  if (kind === 'job') return 'clock'
  if (kind === 'subagent') return 'bot'
  return ICONS[platform.toLowerCase()] ?? 'message-square'
}

export function platformName(platform: string): string {
  const name = platform.replace(/[_-]+/g, ' ')
  return name === 'sms' || name === 'api' ? name.toUpperCase() : name.charAt(0).toUpperCase() + name.slice(1)
}
